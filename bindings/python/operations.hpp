// What can be done with an operation: start, test, wait.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>

#include "arrays.hpp"
#include "errors.hpp"
#include "objects.hpp"

namespace tutti::python {

inline void require_at_rest(const OperationObject& self) {
  if (self.value->in_flight())
    throw std::runtime_error("the operation is in flight: test() or wait() first (" +
                             self.value->describe() + ")");
}

inline void start(OperationObject& self) {
  const Use use(self.context);
  require_at_rest(self);
  require_success(*self.communicator, self.value->start());
}

/// Another buffer in place of one of the plan.
inline std::optional<Buffer> buffer_in_place_of(const OperationObject& self, const char* name,
                                                const std::optional<Buffer>& made,
                                                const py::object& given, bool is_written) {
  if (!made) {
    if (!given.is_none())
      throw py::value_error(std::string(name) +
                            ": this rank has none in this operation; pass None");
    return std::nullopt;
  }
  try {
    Buffer buffer = buffer_of(name, given, is_written);
    if (!buffer.dtype.equal(made->dtype) || buffer.count != made->count)
      throw Refused(std::string(name) + " has " + std::to_string(buffer.count) + " elements of " +
                    text_of(buffer.dtype) + ": the operation was made for " +
                    std::to_string(made->count) + " of " + text_of(made->dtype));
    if (self.keeps_buffers && buffer.data != made->data)
      throw Refused(std::string(name) +
                    " is another array: an operation that works without copies (" +
                    self.value->algorithm() + ") keeps those it was made with; make another one");
    return buffer;
  } catch (const Refused& error) {
    throw py::value_error(error.what());
  }
}

/// Arrays of one size may be one array, but overlap in no other way.  A source of another size may
/// lie in its block of the target.
inline void require_equal_or_apart(const std::optional<Buffer>& source,
                                   const std::optional<Buffer>& target) {
  if (!source || !target || source->data == target->data || source->bytes() != target->bytes())
    return;
  const auto* const from = static_cast<const std::byte*>(source->data);
  const auto* const into = static_cast<const std::byte*>(target->data);
  if (from < into + target->bytes() && into < from + source->bytes())
    throw py::value_error("source and target overlap; they may be equal or apart");
}

inline void start_on(OperationObject& self, const py::object& source, const py::object& target) {
  const Use use(self.context);
  require_at_rest(self);
  if (self.is_in_place) throw py::type_error("start: expected one buffer for a broadcast");
  auto new_source = buffer_in_place_of(self, "source", self.made_source, source, false);
  auto new_target = buffer_in_place_of(self, "target", self.made_target, target, true);
  require_equal_or_apart(new_source, new_target);
  self.source = std::move(new_source);
  self.target = std::move(new_target);
  require_success(*self.communicator,
                  self.value->start(data_of(self.source), data_of(self.target)));
}

inline void start_on_one(OperationObject& self, const py::object& given) {
  const Use use(self.context);
  require_at_rest(self);
  if (!self.is_in_place) throw py::type_error("start: expected source and target, or neither");
  self.target = buffer_in_place_of(self, "buffer", self.made_target, given, self.is_written);
  void* const data = data_of(self.target);
  require_success(*self.communicator, self.value->start(data, data));
}

inline bool test(OperationObject& self) {
  const Use use(self.context);
  const Status status = self.value->test();
  require_success(*self.communicator, status);
  return status == Status::ok;
}

/// Waits, the first microseconds with the lock of the interpreter, as giving it away takes about as
/// long as many calls do.  Now and then it looks for signals, such as Ctrl-C.
inline void wait_until(OperationObject& self, Timeout timeout) {
  using namespace std::chrono_literals;
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  Status status = self.value->wait(std::min<Timeout>(timeout, 5us));
  for (Timeout slice = 100ms; status == Status::timed_out;
       slice = std::min<Timeout>(2 * slice, 3s)) {
    const Timeout left = timeout == Timeout::max() ? timeout : timeout - (Clock::now() - begin);
    if (left <= Timeout::zero()) break;
    {
      const py::gil_scoped_release unlocked;
      status = self.value->wait(std::min(left, slice));
    }
    if (status == Status::timed_out && PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
  require_success(*self.communicator, status);
  if (status != Status::ok) raise(error_types().timed_out, self.value->describe(), "timed_out");
}

inline void wait(OperationObject& self, std::optional<double> timeout) {
  const Use use(self.context);
  wait_until(self, timeout_of(timeout));
}

inline void run(OperationObject& self, std::optional<double> timeout) {
  const Use use(self.context);
  const Timeout until = timeout_of(timeout);
  require_at_rest(self);
  require_success(*self.communicator, self.value->start());
  wait_until(self, until);
}

inline void add_operation(py::module_& module) {
  const auto timeout = py::arg("timeout") = py::none();
  py::class_<OperationObject, Operations>(module, "Operation",
                                          "A persistent collective: made once, started any number "
                                          "of times.  It keeps its arrays alive.")
      .def("start", start, "Starts a call, and never waits.")
      .def("start", start_on_one, "Starts a broadcast on another array of the same size and type.",
           py::arg("buffer"))
      .def("start", start_on, "Starts a call on other arrays of the same sizes and types.",
           py::arg("source"), py::arg("target"))
      .def("test", test, "One step of progress; True when the call has ended.")
      .def("wait", wait,
           "Waits for the end of the call, at most `timeout` seconds: then TimedOut says what is "
           "missing, and the call goes on.",
           timeout)
      .def("run", run, "start(), then wait().", timeout)
      .def_property_readonly("in_flight",
                             [](const OperationObject& self) {
                               const Use use(self.context);
                               return self.value->in_flight();
                             })
      .def(
          "set_label",
          [](OperationObject& self, const std::string& label) {
            const Use use(self.context);
            self.value->set_label(label);
          },
          "A name that descriptions, reports and failures show.", py::arg("label"))
      .def("describe",
           [](const OperationObject& self) {
             const Use use(self.context);
             return self.value->describe();
           })
      .def("explanation",
           [](const OperationObject& self) {
             const Use use(self.context);
             return self.value->explanation();
           })
      .def_property_readonly("algorithm",
                             [](const OperationObject& self) { return self.value->algorithm(); })
      .def_property_readonly(
          "notify", [](const OperationObject& self) { return name_of(self.value->notify()); })
      .def_property_readonly("per_round",
                             [](const OperationObject& self) { return self.value->per_round(); })
      .def_property_readonly(
          "coverage",
          [](const OperationObject& self) {
            const auto coverage = self.value->coverage();
            return std::pair(coverage.element_count, coverage.rank_count);
          },
          "How many elements a call brings, and of how many ranks.")
      .def_property_readonly("staleness", [](const OperationObject& self) {
        const Use use(self.context);
        return self.value->staleness();
      });
}

}  // namespace tutti::python
