// Promise: a layer sees only what it links.  These are the include paths of algorithms/plan.
#include "plan/core/plan.hpp"
#if CASE == 1
#include "verbs/device.hpp"
#elif CASE == 2
#include "engine/advance.hpp"
#elif CASE == 3
#include "bootstrap/node_map.hpp"
#endif
