// Messages counted as they come, in a thread of the middleware that must not wait for Python's lock.

#include <time.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace {

struct Arrivals {  // oxygen_ros/node/sampling.py
  std::atomic<std::int64_t> count, newest_ns, wanted_from_ns;  // of the steady clock
  int (*trigger)(void* guard_condition);
  void* guard_condition;
};
static_assert(sizeof(std::atomic<std::int64_t>) == 8 && std::atomic<std::int64_t>::is_always_lock_free,
              "Python reads them as plain numbers");

}  // namespace

// As rcl_subscription_set_on_new_message_callback wants it; user_data: Arrivals.
extern "C" void oxygen_arrived(const void* user_data, std::size_t messages) {
  Arrivals& arrivals = *static_cast<Arrivals*>(const_cast<void*>(user_data));
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  const std::int64_t now_ns = now.tv_sec * std::int64_t{1000000000} + now.tv_nsec;
  arrivals.newest_ns = now_ns;
  arrivals.count += messages;
  if (now_ns >= arrivals.wanted_from_ns) arrivals.trigger(arrivals.guard_condition);
}
