// Exchanges over TCP, by functions of the user's, and of ranks that are forked.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstring>
#include <optional>
#include <tutti/detail/c_boundary.hpp>

#include "errors.hpp"
#include "objects.hpp"

namespace tutti::python {

inline py::object seconds_of(std::int64_t nanoseconds) {
  if (nanoseconds == TUTTI_WAIT_FOREVER) return py::none();
  return py::float_(static_cast<double>(nanoseconds) * 1e-9);
}

/// Calls a function of the user's; what it raises is kept for set_up().
template <class Call>
tutti_status call_user(ExchangeObject& exchange, Call call) noexcept {
  const py::gil_scoped_acquire locked;
  const auto keep = [&](py::error_already_set& error) {
    exchange.raised = error.value();
    return error.matches(PyExc_TimeoutError) ? TUTTI_TIMED_OUT : TUTTI_PEER_FAILED;
  };
  try {
    call();
    return TUTTI_OK;
  } catch (py::error_already_set& error) {
    return keep(error);
  } catch (const py::builtin_exception& wrong) {  // an answer of another type
    wrong.set_error();
    py::error_already_set error;
    return keep(error);
  }
}

inline tutti_status allgather_of_user(void* context, const void* mine, void* all, std::size_t bytes,
                                      std::int64_t timeout_ns) {
  ExchangeObject& exchange = *static_cast<ExchangeObject*>(context);
  return call_user(exchange, [&] {
    const py::object answer = exchange.allgather(py::bytes(static_cast<const char*>(mine), bytes),
                                                 seconds_of(timeout_ns));
    const py::buffer_info got = py::buffer(answer).request();
    const auto got_bytes = static_cast<std::size_t>(got.size * got.itemsize);
    if (got_bytes != bytes * exchange.rank_count) {
      PyErr_Format(PyExc_ValueError,
                   "allgather of the user's exchange returned %zu bytes: expected those of all "
                   "ranks, %zu",
                   got_bytes, bytes * exchange.rank_count);
      throw py::error_already_set();
    }
    std::memcpy(all, got.ptr, got_bytes);
  });
}

inline tutti_status barrier_of_user(void* context, std::int64_t timeout_ns) {
  ExchangeObject& exchange = *static_cast<ExchangeObject*>(context);
  return call_user(exchange, [&] { exchange.barrier(seconds_of(timeout_ns)); });
}

inline std::shared_ptr<ExchangeObject> user_exchange(std::int32_t rank, std::int32_t rank_count,
                                                     py::function allgather, py::function barrier) {
  auto object = std::make_shared<ExchangeObject>();
  object->allgather = std::move(allgather);
  object->barrier = std::move(barrier);
  const tutti_exchange_functions functions{.struct_size = sizeof functions,
                                           .rank = rank,
                                           .rank_count = rank_count,
                                           .context = object.get(),
                                           .allgather = allgather_of_user,
                                           .barrier = barrier_of_user};
  tutti_failure failure;
  if (tutti_user_exchange(&functions, &object->from_functions, &failure) != TUTTI_OK)
    raise(error_types().invalid_argument, failure.text, "invalid_argument");
  object->exchange = object->from_functions->exchange;
  object->rank_count = static_cast<std::size_t>(rank_count);
  return object;
}

inline std::shared_ptr<ExchangeObject> tcp_exchange(std::optional<std::uint32_t> rank,
                                                    std::optional<std::uint32_t> rank_count,
                                                    std::optional<std::string> rendezvous,
                                                    std::optional<std::string> secret,
                                                    std::optional<double> timeout) {
  auto object = std::make_shared<ExchangeObject>();
  const bool is_given = rank || rank_count || rendezvous || secret;
  if (is_given && !(rank && rank_count && rendezvous && secret))
    raise(error_types().invalid_argument,
          "tcp_exchange: expected rank, rank_count, rendezvous and secret, or none of them, for "
          "TUTTI_RANK, TUTTI_SIZE, TUTTI_RENDEZVOUS and TUTTI_SECRET",
          "invalid_argument");
  object->owned = set_up(*object, [&] {
    TcpOptions options;
    if (is_given) {
      options.rank = Rank{*rank};
      options.rank_count = *rank_count;
      options.rendezvous = *rendezvous;
      options.secret = *secret;
    } else {
      options = TcpOptions::from_environment();
    }
    if (timeout) options.timeout = timeout_of(timeout);
    return tutti::tcp_exchange(options);
  });
  object->exchange = object->owned.get();
  return object;
}

inline void flush_output() {
  for (const char* const name : {"stdout", "stderr"}) {
    const py::object stream = py::module_::import("sys").attr(name);
    if (!stream.is_none()) stream.attr("flush")();
  }
}

/// What the body of one rank returns, as the status of a process.  An exception is printed as by
/// the interpreter, and leaves as one of C++, so that the other ranks hear of it.
inline int run_body(Exchange& exchange, const py::function& body) {
  auto object = std::make_shared<ExchangeObject>();
  object->exchange = &exchange;
  int status = 0;
  bool has_failed = false;
  try {
    const py::object result = body(object);
    if (!result.is_none()) status = result.cast<int>();
  } catch (py::error_already_set& error) {
    const py::object code =
        error.matches(PyExc_SystemExit) ? py::object(error.value().attr("code")) : py::object();
    if (code && code.is_none()) {
      status = 0;
    } else if (code && py::isinstance<py::int_>(code)) {
      status = code.cast<int>();
    } else {
      has_failed = true;
      error.restore();
      PyErr_PrintEx(0);
    }
  }
  // The exchange ends with the body, and so does what uses it, but for what globals hold.
  py::module_::import("gc").attr("collect")();
  flush_output();
  if (has_failed) throw std::runtime_error("the body raised an exception (above)");
  return status;
}

inline std::vector<std::pair<int, int>> run_local(std::uint32_t rank_count,
                                                  const py::function& body) {
  flush_output();  // or every rank would print what is left here
  struct Forking {
    Forking() { PyOS_BeforeFork(); }
    Forking(const Forking&) = delete;
    Forking& operator=(const Forking&) = delete;
    ~Forking() { PyOS_AfterFork_Parent(); }
  };
  ExchangeObject none;
  std::vector<std::pair<int, int>> results;
  try {
    const Forking forking;
    for (const LocalResult& one :
         tutti::run_local({.rank_count = rank_count}, [&](Exchange& exchange) {
           PyOS_AfterFork_Child();
           return run_body(exchange, body);
         }))
      results.emplace_back(one.exit_status, one.signal);
  } catch (const Error& error) {
    raise(error);
  }
  return results;
}

inline void add_exchanges(py::module_& module) {
  py::class_<ExchangeObject, std::shared_ptr<ExchangeObject>>(
      module, "Exchange", "How the ranks find each other; made by functions of this module.");
  module.def("_run_local", run_local, py::arg("rank_count"), py::arg("body"));
  module.def(
      "user_exchange", user_exchange,
      "An exchange by functions of yours.  allgather(mine: bytes, timeout) returns the bytes "
      "of all ranks in rank order; barrier(timeout) returns when all ranks have entered.  "
      "Timeouts are seconds or None; one that has passed raises TimeoutError.",
      py::arg("rank"), py::arg("rank_count"), py::arg("allgather"), py::arg("barrier"));
  module.def(
      "tcp_exchange", tcp_exchange,
      "Meets the other ranks over TCP; without arguments as the environment says (TUTTI_RANK, "
      "TUTTI_SIZE, TUTTI_RENDEZVOUS, TUTTI_SECRET or TUTTI_SECRET_FILE or TUTTI_SECRET_FD, "
      "TUTTI_BOOTSTRAP_TIMEOUT).",
      py::kw_only(), py::arg("rank") = py::none(), py::arg("rank_count") = py::none(),
      py::arg("rendezvous") = py::none(), py::arg("secret") = py::none(),
      py::arg("timeout") = py::none());
}

}  // namespace tutti::python
