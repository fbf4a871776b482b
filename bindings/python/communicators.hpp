// Contexts, communicators and segments; tutti.Communicator, with all collectives as its functions.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives.hpp"

namespace tutti::python {

inline ConnectBy connect_of(const std::string& text) {
  if (text == "exchange") return ConnectBy::exchange;
  if (text == "cm") return ConnectBy::cm;
  throw Refused("connect \"" + text + "\": expected one of exchange, cm");
}

inline Communicators communicator_of(std::shared_ptr<ContextObject> context,
                                     std::shared_ptr<ExchangeObject> exchange) {
  Communicators object(new CommunicatorObject, retire<CommunicatorObject>);
  object->context = std::move(context);
  object->exchange = std::move(exchange);
  return object;
}

inline std::shared_ptr<ContextObject> make_context(const py::kwargs& given) {
  ContextOptions options;
  const auto bytes = [](std::optional<std::size_t>& to) {
    return [&to](const py::object& value) { to = value.cast<std::size_t>(); };
  };
  const auto yes_or_no = [](std::optional<bool>& to) {
    return [&to](const py::object& value) { to = value.cast<bool>(); };
  };
  const auto counts = [](const char* name, std::optional<std::vector<std::uint32_t>>& to) {
    return [name, &to](const py::object& value) { to = counts_of<std::uint32_t>(name, value); };
  };
  const auto word = [](const char* name, auto last, auto& to) {
    return [name, &to](const py::object& value) {
      to = named<decltype(last)::value>(name, value.cast<std::string>());
    };
  };
#define TUTTI_LAST(enumerator) std::integral_constant<decltype(enumerator), enumerator>()
  const std::map<std::string, std::function<void(const py::object&)>> known{
      {"device", [&](const py::object& value) { options.device = value.cast<std::string>(); }},
      {"arena_bytes", bytes(options.arena_bytes)},
      {"connections_max",
       [&](const py::object& value) { options.connections_max = value.cast<std::uint32_t>(); }},
      {"check", word("check", TUTTI_LAST(CheckLevel::collective), options.check)},
      {"chunk_bytes", bytes(options.chunk_bytes)},
      {"single_copy_bytes", bytes(options.single_copy_bytes)},
      {"register_buffers", yes_or_no(options.register_buffers)},
      {"setup_timeout",
       [&](const py::object& value) { options.setup_timeout = timeout_of(value.cast<double>()); }},
      {"detection_bound",
       [&](const py::object& value) {
         options.detection_bound = timeout_of(value.cast<double>());
       }},
      {"shrinkable", yes_or_no(options.shrinkable)},
      {"connect",
       [&](const py::object& value) { options.connect = connect_of(value.cast<std::string>()); }},
      {"notify", word("notify", TUTTI_LAST(Notify::flag), options.notify)},
      {"wait", word("wait", TUTTI_LAST(WaitPolicy::block), options.wait)},
      {"shared_notifications",
       word("shared_notifications", TUTTI_LAST(SharedNotifications::republished),
            options.shared_notifications)},
      {"per_round", counts("per_round", options.per_round)},
      {"ranks_per_node", counts("ranks_per_node", options.ranks_per_node)},
      {"placement", word("placement", TUTTI_LAST(Placement::random), options.placement)},
      {"domains_above", bytes(options.domains_above)},
      {"ranks_per_domain", counts("ranks_per_domain", options.ranks_per_domain)},
      {"tuning_file",
       [&](const py::object& value) { options.tuning_file = value.cast<std::string>(); }},
      {"tuning", word("tuning", TUTTI_LAST(TuningMode::off), options.tuning)},
      {"tuning_keeps_bits", yes_or_no(options.tuning_keeps_bits)},
      {"tuning_appends", yes_or_no(options.tuning_appends)},
  };
#undef TUTTI_LAST
  for (const auto& [name, value] : given) {
    const auto found = known.find(name.cast<std::string>());
    if (found == known.end()) {
      std::string expected;
      for (const auto& one : known) expected += (expected.empty() ? "" : ", ") + one.first;
      throw py::type_error("Context has no option \"" + text_of(name) + "\"; it has " + expected);
    }
    try {
      if (!value.is_none()) found->second(py::reinterpret_borrow<py::object>(value));
    } catch (const Refused& wrong) {
      raise(error_types().invalid_argument, wrong.what(), "invalid_argument");
    } catch (const py::cast_error&) {
      raise(error_types().invalid_argument,
            found->first + ": " + py::repr(value).cast<std::string>() +
                " is of another type than this option, or out of its range",
            "invalid_argument");
    }
  }
  try {
    return std::make_shared<ContextObject>(options);
  } catch (const Error& error) {
    raise(error);
  }
}

inline Communicators make_communicator(std::shared_ptr<ContextObject> context,
                                       const py::object& given) {
  // A communicator of mpi4py is turned into an exchange, which lives as long as it is needed.
  const py::object exchange =
      py::isinstance<ExchangeObject>(given)
          ? given
          : py::object(py::module_::import("tutti").attr("mpi_exchange")(given));
  auto object =
      communicator_of(std::move(context), exchange.cast<std::shared_ptr<ExchangeObject>>());
  if (object->exchange->exchange == nullptr) throw py::value_error("the exchange has ended");
  const Use use(object->context);
  set_up(*object->exchange, [&] {
    object->value.emplace(object->context->value, *object->exchange->exchange);
    return true;
  });
  return object;
}

inline Communicators split(const Communicators& self, std::optional<std::uint32_t> color,
                           std::int64_t key) {
  const Use use(self->context);
  auto part = set_up(*self->exchange, [&] { return self->value->split(color, key); });
  if (!part) return nullptr;
  auto object = communicator_of(self->context, self->exchange);
  object->whole = self;
  object->value.emplace(std::move(*part));
  return object;
}

inline Communicators shrink(const Communicators& self, std::optional<double> timeout) {
  const Use use(self->context);
  const Timeout within = timeout_of(timeout);
  auto object = communicator_of(self->context, std::make_shared<ExchangeObject>());
  set_up(*object->exchange, [&] {
    object->value.emplace(self->value->shrink(within));
    return true;
  });
  return object;
}

/// Raises what a call of the data path has found, if it is a failure.
inline void require_success(const CommunicatorObject& communicator, Status status) {
  if (static_cast<int>(status) < 0) raise(communicator.value->failure(), status);
}

inline py::object failure_of(const CommunicatorObject& self) {
  const Use use(self.context);
  const Failure& failure = self.value->failure();
  return failure.status == Status::ok ? py::object(py::none()) : py::object(py::str(failure.text));
}

/// Zeroed memory that peers may write, as an array; the segment lives as long as any view of it.
inline py::array allocate(const Communicators& self, const py::object& shape,
                          const py::object& dtype, const std::string& scope) {
  std::optional<py::dtype> type;
  std::vector<py::ssize_t> extents;
  std::size_t bytes = 0;
  std::optional<std::string> wrong;
  Scope whose = Scope::rank;
  // Whatever is wrong here is refused on every rank, so that none waits for this one.
  try {
    type = py::module_::import("numpy").attr("dtype")(dtype).cast<py::dtype>();
    bytes = static_cast<std::size_t>(type->itemsize());
    const py::object all =
        PyIndex_Check(shape.ptr()) != 0 ? py::object(py::make_tuple(shape)) : shape;
    for (const auto extent : counts_of<std::size_t>("shape", all)) {
      if (extent > SIZE_MAX / 2 / std::max<std::size_t>(bytes, 1))
        throw Refused("shape: more elements than there is memory");
      bytes *= extent;
      extents.push_back(static_cast<py::ssize_t>(extent));
    }
    if (type->attr("hasobject").cast<bool>())
      throw Refused("dtype " + text_of(*type) + ": a segment holds no Python objects");
    if (scope == "node")
      whose = Scope::node;
    else if (scope != "rank")
      throw Refused("scope \"" + scope + "\": expected one of rank, node");
  } catch (const std::exception& error) {
    wrong = error.what();
  }
  const Use use(self->context);
  auto segment = std::shared_ptr<SegmentObject>(new SegmentObject, retire<SegmentObject>);
  segment->context = self->context;
  segment->communicator = self;
  set_up(*self->exchange, [&] {
    if (wrong) detail::refuse_segment(*self->value, wrong->c_str());
    segment->value.emplace(self->value->allocate(bytes, whose));
    return true;
  });
  return py::array(*type, extents, segment->value->data(), py::cast(segment));
}

inline void add_communicator(py::module_& module) {
  py::class_<ContextObject, std::shared_ptr<ContextObject>>(
      module, "Context",
      "One process's device, memory and connections.  Options are keywords, named as in C++.")
      .def(py::init(&make_context))
      .def_property_readonly("device_name",
                             [](const ContextObject& self) { return self.value.device_name(); })
      .def_property_readonly("device_choice",
                             [](const ContextObject& self) { return self.value.device_choice(); });
  py::class_<SegmentObject, std::shared_ptr<SegmentObject>>(module, "_Segment");
  py::class_<UserOperator>(module, "UserOperator", "Made by user_operator().")
      .def(py::init([](std::uintptr_t combine, std::uintptr_t inverse, std::uintptr_t context,
                       bool commutative, bool idempotent, bool exact, py::object keep) {
        if (combine == 0) throw Refused("combine is no function");
        return UserOperator{combine,
                            inverse,
                            context,
                            {.commutative = commutative, .idempotent = idempotent, .exact = exact},
                            std::move(keep)};
      }));

  const auto op = py::arg("operator") = "sum";
  const auto root = py::arg("root") = 0;
  const auto agreement = py::arg("agreement") = "identical";
  const auto algorithm = py::arg("algorithm") = "automatic";
  const auto across = py::arg("across") = "automatic";
  const auto tree = py::arg("tree") = "automatic";
  const auto per_round = py::arg("per_round") = py::none();
  const auto no_target = py::arg("target") = py::none();
  const auto offsets = py::arg("offsets") = py::none();
  const auto source = py::arg("source"), target = py::arg("target");
  py::class_<CommunicatorObject, Communicators>(
      module, "Communicator",
      "The ranks of an exchange, or of a communicator of mpi4py, over a context.  Collectives make "
      "an Operation, on all ranks alike.")
      .def(py::init(&make_communicator), py::arg("context"), py::arg("exchange"))
      .def_property_readonly(
          "rank", [](const CommunicatorObject& self) { return index_of(self.value->rank()); })
      .def_property_readonly(
          "rank_count", [](const CommunicatorObject& self) { return self.value->rank_count(); })
      .def_property_readonly(
          "node", [](const CommunicatorObject& self) { return index_of(self.value->node()); })
      .def_property_readonly(
          "node_count", [](const CommunicatorObject& self) { return self.value->node_count(); })
      .def_property_readonly(
          "node_remark", [](const CommunicatorObject& self) { return self.value->node_remark(); })
      .def_property_readonly(
          "single_copy_remark",
          [](const CommunicatorObject& self) { return self.value->single_copy_remark(); })
      .def_property_readonly("failure", failure_of, "Why it has failed, or None.")
      .def(
          "report",
          [](const CommunicatorObject& self, bool json) {
            const Use use(self.context);
            return self.value->report(json ? ReportFormat::json : ReportFormat::text);
          },
          "What its operations are doing, and what the missing ranks of this node do: lines, or "
          "JSON.",
          py::kw_only(), py::arg("json") = false)
      .def("split", split, "As MPI_Comm_split; None for ranks whose color is None.",
           py::arg("color"), py::arg("key") = 0)
      .def("shrink", shrink,
           "A communicator of the ranks that are still there, each of which calls it within so "
           "many seconds; needs the option shrinkable.",
           py::arg("timeout"))
      .def("allocate", allocate,
           "A zeroed array in memory that peers may write; scope is \"rank\", or \"node\" for one "
           "memory of all ranks of a node.",
           py::arg("shape"), py::arg("dtype") = "float64", py::kw_only(), py::arg("scope") = "rank")
      .def("abort",
           [](CommunicatorObject& self) {
             const Use use(self.context);
             self.value->abort();
           })
      .def("synchronize",
           [](CommunicatorObject& self) {
             const Use use(self.context);
             set_up(*self.exchange, [&] {
               self.value->synchronize();
               return true;
             });
           })
      .def(
          "cancel",
          [](CommunicatorObject& self) {
            const Use use(self.context);
            set_up(*self.exchange, [&] {
              self.value->cancel();
              return true;
            });
          },
          "Collective: gives up all calls in flight of its operations, which can be started again "
          "then as if they had just been made.")
      .def("progress",
           [](CommunicatorObject& self) {
             const Use use(self.context);
             require_success(self, self.value->progress());
           })
      .def("barrier", make_barrier, py::kw_only(), per_round, algorithm, across)
      .def("allreduce", make_allreduce, source, target, op, py::kw_only(), agreement, per_round,
           algorithm, across)
      .def("allreduce_ssp", make_allreduce_ssp, source, target, op, py::kw_only(), py::arg("slack"))
      .def("broadcast", make_broadcast, py::arg("buffer"), root, py::kw_only(),
           py::arg("data_fraction") = 1.0, tree)
      .def("reduce", make_reduce, source, no_target, op, root, py::kw_only(), agreement,
           py::arg("data_fraction") = 1.0, py::arg("rank_fraction") = 1.0, tree)
      .def(
          "scan",
          [](const Communicators& self, const py::object& from, const py::object& to,
             const py::object& by) { return make_scan(self, from, to, by, false); },
          source, target, op)
      .def(
          "exscan",
          [](const Communicators& self, const py::object& from, const py::object& to,
             const py::object& by) { return make_scan(self, from, to, by, true); },
          source, no_target, op)
      .def("allgather", make_allgather, source, target, py::kw_only(), algorithm)
      .def("allgatherv", make_allgatherv, source, target, py::arg("counts"), offsets, py::kw_only(),
           algorithm)
      .def("alltoall", make_alltoall, source, target)
      .def("alltoallv", make_alltoallv, source, py::arg("source_counts"), target,
           py::arg("target_counts"), py::arg("source_offsets") = py::none(),
           py::arg("target_offsets") = py::none())
      .def("gather", make_gather, source, no_target, root)
      .def("scatter", make_scatter, source, target, root)
      .def("gatherv", make_gatherv, source, no_target, py::arg("counts") = py::none(), offsets,
           root)
      .def("scatterv", make_scatterv, source, target, py::arg("counts") = py::none(), offsets, root)
      .def("reduce_scatter", make_reduce_scatter, source, target, op,
           py::arg("counts") = py::none(), py::kw_only(), agreement, algorithm);
}

}  // namespace tutti::python
