// tutti._tutti: the C++ interface as Python sees it.  tutti/__init__.py hands it on, with what is
// written in Python.
#include <pybind11/pybind11.h>

#include "communicators.hpp"
#include "errors.hpp"
#include "exact_sums.hpp"
#include "exchanges.hpp"
#include "operations.hpp"

namespace tutti::python {

PYBIND11_MODULE(_tutti, module) {
  module.attr("__version__") = TUTTI_VERSION;
  make_error_types(module);
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const Error& error) {
      try {
        raise(error);
      } catch (py::error_already_set& set) {
        set.restore();
      }
    } catch (const Refused& wrong) {
      PyErr_SetString(error_types().invalid_argument.ptr(), wrong.what());
    }
  });
  add_exchanges(module);
  add_communicator(module);
  add_operation(module);
  add_exact_sum(module);
}

}  // namespace tutti::python
