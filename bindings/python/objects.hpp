// What Python's objects hold, so that they go in the right order whatever the garbage collector
// does: an operation keeps its communicator and its arrays, a communicator its context and
// exchange.
#pragma once

#include <pybind11/pybind11.h>

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <tutti/tutti.hpp>
#include <utility>
#include <vector>

#include "tutti/tutti.h"

namespace tutti::python {

namespace py = pybind11;

struct ContextObject {
  explicit ContextObject(const ContextOptions& options) : value(options) {}
  Context value;
  bool in_use = false;                           // guarded by the lock of the interpreter
  std::vector<std::shared_ptr<void>> left_over;  // what was collected meanwhile
};

/// One thread at a time uses a context and what is made from it.  The lock of the interpreter is
/// not held while waiting, so this says so to a second thread.
class Use {
 public:
  explicit Use(std::shared_ptr<ContextObject> context) : context_(std::move(context)) {
    if (context_->in_use)
      throw std::runtime_error(
          "another thread, or the caller of this function, is in a call of the same tutti.Context: "
          "one at a time; a context for each thread is independent");
    context_->in_use = true;
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  ~Use() {
    while (!context_->left_over.empty()) {
      const std::shared_ptr<void> last = std::move(context_->left_over.back());
      context_->left_over.pop_back();
    }
    context_->in_use = false;
  }

 private:
  const std::shared_ptr<ContextObject> context_;
};

/// Deletes an object of a context; the collector may run in any thread, so it may have to wait for
/// the end of a call.
template <class Object>
void retire(Object* object) {
  if (!object->context) return delete object;
  const std::shared_ptr<ContextObject> context = object->context;
  std::shared_ptr<void> last(object, [](void* it) { delete static_cast<Object*>(it); });
  if (context->in_use) {
    context->left_over.push_back(std::move(last));
  } else {
    const Use use(context);
    last.reset();
  }
}
/// Destroys what may wait for other ranks.
template <class Value>
void destroy_unlocked(Value& value) noexcept {
  const py::gil_scoped_release unlocked;
  value.reset();
}

struct ExchangeObject {
  ExchangeObject() = default;
  ExchangeObject(const ExchangeObject&) = delete;
  ExchangeObject& operator=(const ExchangeObject&) = delete;
  ~ExchangeObject() {
    const py::gil_scoped_release unlocked;
    owned.reset();
    (void)tutti_exchange_free(from_functions);
  }

  Exchange* exchange = nullptr;  // one of these two, or that of run_local()
  std::unique_ptr<Exchange> owned;
  tutti_exchange* from_functions = nullptr;
  py::object allgather, barrier;  // the user's functions
  py::object raised;              // what one of them has raised
  std::size_t rank_count = 0;
};

struct CommunicatorObject {
  ~CommunicatorObject() { destroy_unlocked(value); }
  std::shared_ptr<ContextObject> context;
  std::shared_ptr<ExchangeObject> exchange;
  std::shared_ptr<CommunicatorObject> whole;  // from which it was split
  std::optional<Communicator> value;
};

struct SegmentObject {
  ~SegmentObject() { destroy_unlocked(value); }
  std::shared_ptr<ContextObject> context;
  std::shared_ptr<CommunicatorObject> communicator;
  std::optional<Segment> value;
};

/// The memory of an array, which lives as long as this does.
struct Buffer {
  py::object array;
  py::object dtype;
  void* data = nullptr;
  std::size_t count = 0;
  std::size_t element_bytes = 1;

  std::size_t bytes() const noexcept { return count * element_bytes; }
};

struct OperationObject {
  ~OperationObject() { destroy_unlocked(value); }
  std::shared_ptr<ContextObject> context;
  std::shared_ptr<CommunicatorObject> communicator;
  std::optional<Buffer> made_source, made_target;  // those of the plan; none: this rank has none
  std::optional<Buffer> source, target;            // those of the next call
  bool is_in_place = false;                        // one buffer is both: a broadcast
  bool is_written = true;                          // and is not the root's
  bool keeps_buffers = false;                      // works without copies, or on memory of the node
  py::object operator_;
  std::optional<Operation> value;
};

using Communicators = std::shared_ptr<CommunicatorObject>;
using Operations = std::shared_ptr<OperationObject>;

/// Thrown for wrong arguments of a collective: they are refused on all ranks, with this text.
struct Refused : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

/// Seconds as a timeout; None is for ever.
inline Timeout timeout_of(std::optional<double> seconds) {
  if (!seconds) return Timeout::max();
  if (std::isnan(*seconds)) throw py::value_error("timeout: NaN; expected seconds, or None");
  if (*seconds > 9e9) return Timeout::max();
  if (*seconds < 0) return Timeout(-1);
  return Timeout(static_cast<Timeout::rep>(*seconds * 1e9));
}

}  // namespace tutti::python
