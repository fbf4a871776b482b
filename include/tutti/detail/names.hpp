// Names of algorithms, operators, types, agreement and check levels, as command lines and results
// spell them.
#pragma once

#include <tutti/algorithm.hpp>
#include <tutti/communicator.hpp>
#include <tutti/detail/enumerators.hpp>
#include <tutti/reduction.hpp>

namespace tutti {

constexpr const char* name_of(BuiltIn which) noexcept {
  return detail::name_in<BuiltIn::logical_or>(
      {"user", "sum", "prod", "min", "max", "band", "bor", "bxor", "land", "lor"}, which);
}

constexpr const char* name_of(ElementType type) noexcept {
  return detail::name_in<ElementType::bfloat16>(
      {"other", "int32", "uint32", "int64", "uint64", "float", "double", "half", "bfloat16"}, type);
}

constexpr const char* name_of(Algorithm algorithm) noexcept {
  return detail::name_in<Algorithm::canonical_halving>(
      {"automatic", "dissemination", "two_partial_dissemination", "recursive_multiplying", "nway",
       "nway_inverse", "decomposition", "decomposition_digits", "canonical_dissemination",
       "chunked_fold", "ring", "shared_ring", "circulant", "canonical_halving"},
      algorithm);
}

constexpr const char* name_of(Notify notify) noexcept {
  return detail::name_in<Notify::flag>({"immediate", "flag"}, notify);
}

constexpr const char* name_of(Across across) noexcept {
  return detail::name_in<Across::lanes>({"automatic", "flat", "leader", "lanes"}, across);
}

constexpr const char* name_of(Tree tree) noexcept {
  return detail::name_in<Tree::fibonacci>({"automatic", "knomial", "binomial", "fibonacci"}, tree);
}

constexpr const char* name_of(Agreement agreement) noexcept {
  return detail::name_in<Agreement::relaxed>({"identical", "reproducible", "relaxed"}, agreement);
}

constexpr const char* name_of(Placement placement) noexcept {
  return detail::name_in<Placement::random>({"block", "cyclic", "random"}, placement);
}

constexpr const char* name_of(CheckLevel level) noexcept {
  return detail::name_in<CheckLevel::collective>({"off", "local", "collective"}, level);
}

constexpr const char* name_of(WaitPolicy policy) noexcept {
  return detail::name_in<WaitPolicy::block>({"automatic", "spin", "yield", "block"}, policy);
}

constexpr const char* name_of(TuningMode mode) noexcept {
  return detail::name_in<TuningMode::off>({"file", "model", "first_call", "off"}, mode);
}

constexpr const char* name_of(SharedNotifications how) noexcept {
  return detail::name_in<SharedNotifications::republished>({"automatic", "words", "republished"},
                                                           how);
}

}  // namespace tutti
