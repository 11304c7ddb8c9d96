// The engine in WebAssembly: the same sources, without exceptions and threads, which a page lacks.
// Without memory the module traps, and the page loses its model; NaN is reported as elsewhere.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

namespace std {
struct thread {  // runs its function at once
  template <class Function, class... Arguments>
  explicit thread(Function&& function, Arguments... arguments) {
    function(arguments...);
  }
  void join() {}
};
}  // namespace std

#define try if (true)
#define catch(...) if (false)
#define throw __builtin_trap(),

#include "interface.cpp"
