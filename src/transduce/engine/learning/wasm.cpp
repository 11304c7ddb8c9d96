// The trainer in WebAssembly: the same sources, without exceptions, which a page lacks, and without the
// messages of the library, which would bring printf into the module.
#define _LIBCPP_VERBOSE_ABORT(...) __builtin_trap()
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
