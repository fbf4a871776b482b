// Python's exceptions: tutti.Error and those that are made from it.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "objects.hpp"

namespace tutti::python {

struct ErrorTypes {
  py::handle error, invalid_argument, timed_out, peer_failed, transport_failed, aborted;
};
inline ErrorTypes& error_types() {
  static ErrorTypes types;
  return types;
}

/// `code` and `peer` of each type are those of errors that are raised without them.
inline void make_error_types(py::module_& module) {
  const auto make = [&](const char* name, const py::tuple& bases, const char* code,
                        const char* text) {
    PyObject* const type = PyErr_NewExceptionWithDoc((std::string("tutti.") + name).c_str(), text,
                                                     bases.ptr(), nullptr);
    if (type == nullptr) throw py::error_already_set();
    module.attr(name) = py::handle(type);
    py::handle(type).attr("code") = code;
    py::handle(type).attr("peer") = py::none();
    return py::handle(type);
  };
  ErrorTypes& types = error_types();
  const auto also = [&](PyObject* other) { return py::make_tuple(types.error, py::handle(other)); };
  types.error = make("Error", py::make_tuple(py::handle(PyExc_RuntimeError)), "system",
                     "What tutti could not do.  `code` is a word for programs.");
  types.invalid_argument = make("InvalidArgument", also(PyExc_ValueError), "invalid_argument",
                                "The caller's value cannot work; all ranks get this.");
  types.timed_out = make("TimedOut", also(PyExc_TimeoutError), "timed_out",
                         "The time is over.  An operation is still in flight: wait again.");
  types.peer_failed = make("PeerFailed", py::make_tuple(types.error), "peer_failed",
                           "A rank is gone; `peer` is its number, or None.");
  types.transport_failed = make("TransportFailed", py::make_tuple(types.error), "transport_failed",
                                "The network refused to transport.");
  types.aborted = make("Aborted", py::make_tuple(types.error), "aborted", "A rank gave up.");
}

[[noreturn]] inline void raise(py::handle type, const std::string& text, const char* code,
                               const py::object& peer = py::none(), const py::object& cause = {}) {
  py::object error = type(text);
  error.attr("code") = code;
  error.attr("peer") = peer;
  if (cause) PyException_SetCause(error.ptr(), py::object(cause).release().ptr());
  PyErr_SetObject(type.ptr(), error.ptr());
  throw py::error_already_set();
}

/// For a set-up that failed; `cause` is what a function of the user's exchange has raised.
[[noreturn]] inline void raise(const Error& error, const py::object& cause = {}) {
  static constexpr const char* codes[] = {"invalid_argument", "mismatch",  "unsupported",
                                          "limit_exceeded",   "no_device", "timed_out",
                                          "peer_failed",      "system"};
  const ErrorTypes& types = error_types();
  py::handle type = types.error;
  if (error.code() == ErrorCode::invalid_argument) type = types.invalid_argument;
  if (error.code() == ErrorCode::timed_out) type = types.timed_out;
  if (error.code() == ErrorCode::peer_failed) type = types.peer_failed;
  raise(type, error.what(), codes[static_cast<std::size_t>(error.code())], py::none(), cause);
}

/// For a communicator that has failed.
[[noreturn]] inline void raise(const Failure& failure, Status status) {
  const ErrorTypes& types = error_types();
  py::handle type = types.aborted;
  if (status == Status::peer_failed) type = types.peer_failed;
  if (status == Status::transport_failed) type = types.transport_failed;
  const py::object peer = failure.peer == no_rank ? py::object(py::none())
                                                  : py::object(py::int_(index_of(failure.peer)));
  raise(type, failure.text, name_of(status), peer);
}

/// Runs `make`, which may block, without the lock of the interpreter.
template <class Make>
auto set_up(ExchangeObject& exchange, Make make) {
  try {
    const py::gil_scoped_release unlocked;
    return make();
  } catch (const Error& error) {
    raise(error, std::exchange(exchange.raised, {}));
  }
}

}  // namespace tutti::python
