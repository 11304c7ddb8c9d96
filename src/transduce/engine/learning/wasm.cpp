// The trainer in WebAssembly: the same sources, without exceptions, which a page lacks.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <initializer_list>
#include <new>
#include <string>
#include <utility>
#include <vector>

#define throw __builtin_trap(),

#include "learning.cpp"
