// tutti.ExactSum.
#pragma once

#include <span>
#include <string>

#include "arrays.hpp"

namespace tutti::python {

inline void add(ExactSumObject& self, const py::object& given) {
  if (PyFloat_Check(given.ptr())) {
    self.value().add(given.cast<double>());
    return;
  }
  const Buffer values = buffer_of("values", given, false);
  const ElementType type = element_type_of(values.dtype);
  if (type == ElementType::float64)
    self.value().add(std::span(static_cast<const double*>(values.data), values.count));
  else if (type == ElementType::float32)
    self.value().add(std::span(static_cast<const float*>(values.data), values.count));
  else
    throw Refused("values has dtype " + text_of(values.dtype) +
                  ": expected float64 or float32; convert it yourself, so that the rounding is "
                  "visible, by values.astype(numpy.float64)");
}

inline void add_products(ExactSumObject& self, const py::object& given_left,
                         const py::object& given_right) {
  const Buffer left = buffer_of("left", given_left, false);
  const Buffer right = buffer_of("right", given_right, false);
  for (const auto& [name, one] : {std::pair("left", &left), std::pair("right", &right)})
    if (element_type_of(one->dtype) != ElementType::float64)
      throw Refused(std::string(name) + " has dtype " + text_of(one->dtype) +
                    ": expected float64, such as " + name + ".astype(numpy.float64)");
  require_count("right", right, left.count, "as many as left");
  self.value().add_products(std::span(static_cast<const double*>(left.data), left.count),
                            std::span(static_cast<const double*>(right.data), right.count));
}

inline ExactSumObject make_exact_sum() {
  return {py::module_::import("numpy").attr("zeros")(1, exact_sum_dtype())};
}

inline void add_exact_sum(py::module_& module) {
  module.attr("exact_sum_dtype") = exact_sum_dtype() = py::module_::import("numpy").attr("dtype")(
      py::list(py::make_tuple(py::make_tuple("words", "<u8", py::make_tuple(5)))),
      py::arg("align") = true);
  py::class_<ExactSumObject>(
      module, "ExactSum",
      "A sum of floats whose bits depend on the values alone, not on their order.  It can be an "
      "array of a collective.")
      .def(py::init(&make_exact_sum))
      .def("add", add, "Adds a float, or an array of float64 or float32.", py::arg("values"))
      .def("add_products", add_products, "Adds left[i] * right[i], each rounded to a float64.",
           py::arg("left"), py::arg("right"))
      .def(
          "merge",
          [](ExactSumObject& self, ExactSumObject& other) { self.value().add(other.value()); },
          py::arg("other"))
      .def("clear", [](ExactSumObject& self) { self.value() = {}; })
      .def(
          "value", [](ExactSumObject& self) { return self.value().value(); },
          "The sum, rounded once.")
      .def("value_as_float", [](ExactSumObject& self) { return self.value().value_as_float(); })
      .def_readonly("array", &ExactSumObject::array, "Its memory, of one exact_sum_dtype.")
      .def("__eq__", [](ExactSumObject& self, ExactSumObject& other) {
        return self.value() == other.value();
      });
}

}  // namespace tutti::python
