// Arguments of collectives: arrays, operators, blocks and words.  What is wrong is thrown as
// Refused.
#pragma once

#include <pybind11/numpy.h>

#include <cstdint>
#include <limits>
#include <string>
#include <tutti/detail/names.hpp>

#include "objects.hpp"

namespace tutti::python {

inline std::string text_of(const py::handle& object) {
  return py::str(object).cast<std::string>();
}

/// The type of the elements of tutti.ExactSum, which has one.
inline py::object& exact_sum_dtype() {
  static py::object& dtype = *new py::object;  // outlives the interpreter's own clearing up
  return dtype;
}

struct ExactSumObject {
  py::array array;  // one element
  ExactSum& value() { return *static_cast<ExactSum*>(array.mutable_data()); }
};

/// Floats of 16 bits with the exponent of 32: NumPy has none of its own, ml_dtypes makes one.
inline bool is_bfloat16(const py::handle& dtype) {
  return dtype.attr("itemsize").cast<std::size_t>() == 2 && text_of(dtype) == "bfloat16";
}

inline ElementType element_type_of(const py::handle& dtype) {
  if (is_bfloat16(dtype)) return ElementType::bfloat16;
  const auto kind = text_of(dtype.attr("kind"));
  const auto bytes = dtype.attr("itemsize").cast<std::size_t>();
  if (kind == "f" && bytes == 2) return ElementType::float16;
  if (bytes != 4 && bytes != 8) return ElementType::other;
  if (kind == "f") return bytes == 4 ? ElementType::float32 : ElementType::float64;
  if (kind == "i") return bytes == 4 ? ElementType::int32 : ElementType::int64;
  if (kind == "u") return bytes == 4 ? ElementType::uint32 : ElementType::uint64;
  return ElementType::other;
}

/// The memory of what was given as `name`: a NumPy array, or what has a buffer.
inline Buffer buffer_of(const std::string& name, const py::object& given, bool is_written) {
  const auto refuse = [&](const std::string& what, const std::string& remedy) {
    throw Refused(name + " " + what + ": " + remedy);
  };
  py::object array = given;
  if (py::isinstance<ExactSumObject>(given)) array = given.cast<ExactSumObject&>().array;
  if (!py::isinstance<py::array>(array)) {
    if (PyObject_CheckBuffer(given.ptr()) == 0)
      refuse("is " + text_of(py::type::of(given).attr("__name__")) +
                 ", which has no memory of its own to work in",
             "pass a NumPy array, such as numpy.array([...])");
    array = py::module_::import("numpy").attr("asarray")(py::memoryview(given));
  }
  const auto values = py::reinterpret_borrow<py::array>(array);
  if ((values.flags() & py::array::c_style) == 0) {
    const std::string shape = "is not contiguous (shape " + text_of(array.attr("shape")) +
                              ", strides " + text_of(array.attr("strides")) + " bytes)";
    if ((values.flags() & py::array::f_style) != 0)
      refuse(shape, "it is in Fortran's order: pass its transpose, " + name + ".T");
    if (is_written)
      refuse(shape, "pass a contiguous array, such as numpy.empty_like(" + name +
                        ", order=\"C\"), and copy from it when the call has ended");
    refuse(shape,
           "pass numpy.ascontiguousarray(" + name + "), and fill that array before later calls");
  }
  const py::object dtype = array.attr("dtype");
  if (dtype.attr("hasobject").cast<bool>())
    refuse("holds Python objects (dtype " + text_of(dtype) + ")",
           "convert it to numbers, such as " + name + ".astype(numpy.float64)");
  if (!dtype.attr("isnative").cast<bool>())
    refuse("is not in the byte order of this machine (dtype " + text_of(dtype.attr("str")) + ")",
           "convert it by " + name + ".astype(" + name + ".dtype.newbyteorder(\"=\"))");
  if ((values.flags() & py::detail::npy_api::NPY_ARRAY_ALIGNED_) == 0)
    refuse("is not aligned to its elements", "pass a copy, " + name + ".copy()");
  if (is_written && !values.writeable())
    refuse("is read-only, and would be written",
           "pass an array of your own, such as " + name + ".copy()");
  return {.array = array,
          .dtype = dtype,
          // Whether it may be written was asked above.
          .data = const_cast<void*>(values.data()),
          .count = static_cast<std::size_t>(values.size()),
          .element_bytes = static_cast<std::size_t>(values.itemsize())};
}

inline void require_one_type(const Buffer& source, const Buffer& target) {
  if (!source.dtype.equal(target.dtype))
    throw Refused("source has dtype " + text_of(source.dtype) + ", target " +
                  text_of(target.dtype) + ": make them alike, such as source.astype(target.dtype)");
}

inline void require_count(const char* name, const Buffer& buffer, std::size_t expected,
                          const std::string& because) {
  if (buffer.count != expected)
    throw Refused(std::string(name) + " has " + std::to_string(buffer.count) +
                  " elements: expected " + std::to_string(expected) + ", " + because);
}

/// The enumerator of that name, of all up to `last`.
template <auto last>
auto named(const char* what, const std::string& text) {
  std::string expected;
  for (const auto one : detail::enumerators<last>) {
    if (text == name_of(one)) return one;
    expected += (expected.empty() ? "" : ", ") + std::string(name_of(one));
  }
  throw Refused(std::string(what) + " \"" + text + "\": expected one of " + expected);
}

/// A function of C, by its address.
struct UserOperator {
  std::uintptr_t combine = 0, inverse = 0, context = 0;
  OperatorProperties properties;
  py::object keep;  // what has the functions
};

inline Reduction reduction_of(const py::object& given, const std::string& name,
                              const Buffer& buffer) {
  if (py::isinstance<UserOperator>(given)) {
    const UserOperator& user = given.cast<const UserOperator&>();
    return {.combine = reinterpret_cast<CombineFunction>(user.combine),
            .inverse = reinterpret_cast<CombineFunction>(user.inverse),
            .context = reinterpret_cast<void*>(user.context),
            .element_bytes = static_cast<std::uint32_t>(buffer.element_bytes),
            .properties = user.properties,
            .element_type = element_type_of(buffer.dtype)};
  }
  if (!py::isinstance<py::str>(given))
    throw Refused("operator is " + text_of(py::type::of(given).attr("__name__")) +
                  ": expected a word, such as \"sum\", or a tutti.UserOperator");
  const auto which = named<BuiltIn::logical_or>("operator", given.cast<std::string>());
  if (which == BuiltIn::none)
    throw Refused("operator \"user\": pass what tutti.user_operator() returns");
  if (buffer.dtype.equal(exact_sum_dtype())) {
    if (which != BuiltIn::sum)
      throw Refused("operator \"" + given.cast<std::string>() +
                    "\": exact sums can be added only, by \"sum\"");
    return exact_addition();
  }
  const ElementType type = element_type_of(buffer.dtype);
  if (type == ElementType::other)
    throw Refused(
        name + " has dtype " + text_of(buffer.dtype) +
        ", which no operator by name combines: convert it to int32, uint32, int64, uint64, "
        "float16, float32 or float64, such as " +
        name + ".astype(numpy.float64), or pass a tutti.user_operator()");
  return built_in_reduction(which, type);
}

/// Integers that are not negative.
template <class Integer>
std::vector<Integer> counts_of(const char* name, const py::object& given) {
  std::vector<Integer> counts;
  if (given.is_none()) return counts;
  for (const py::handle one : py::iter(given)) {
    long long value = -1;
    try {
      value = py::int_(py::module_::import("operator").attr("index")(one)).cast<long long>();
    } catch (const py::error_already_set&) {
    } catch (const py::cast_error&) {
    }
    if (value < 0 || static_cast<unsigned long long>(value) > std::numeric_limits<Integer>::max())
      throw Refused(std::string(name) + " holds " + text_of(one) + ": expected integers from 0 on");
    counts.push_back(static_cast<Integer>(value));
  }
  return counts;
}

/// Where the blocks of all ranks lie; counts and offsets are in elements.
inline BlockLayout layout_of(const char* name, const Buffer& buffer, const char* counts_name,
                             const py::object& given_counts, const py::object& given_offsets,
                             std::size_t rank_count) {
  const auto counts = counts_of<std::size_t>(counts_name, given_counts);
  const auto offsets = counts_of<std::size_t>("offsets", given_offsets);
  if (counts.size() != rank_count)
    throw Refused(std::string(counts_name) + " has " + std::to_string(counts.size()) +
                  " entries: expected one for each of the " + std::to_string(rank_count) +
                  " ranks");
  if (!given_offsets.is_none() && offsets.size() != rank_count)
    throw Refused("offsets has " + std::to_string(offsets.size()) +
                  " entries: expected one for each of the " + std::to_string(rank_count) +
                  " ranks, or None");
  BlockLayout layout;
  std::size_t next = 0;
  for (std::size_t rank = 0; rank < rank_count; ++rank) {
    const std::size_t begin = offsets.empty() ? next : offsets[rank];
    if (begin > buffer.count || counts[rank] > buffer.count - begin)
      throw Refused(std::string(name) + " has " + std::to_string(buffer.count) +
                    " elements: the block of rank " + std::to_string(rank) + ", " +
                    std::to_string(counts[rank]) + " from element " + std::to_string(begin) +
                    " on, does not fit");
    next = begin + counts[rank];
    layout.bytes.push_back(counts[rank] * buffer.element_bytes);
    layout.offsets.push_back(begin * buffer.element_bytes);
  }
  return layout;
}

}  // namespace tutti::python
