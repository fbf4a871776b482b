// Names of algorithms, operators, types, agreement and check levels, as command lines and results
// spell them.
#pragma once

#include <tutti/algorithm.hpp>
#include <tutti/communicator.hpp>
#include <tutti/reduction.hpp>

namespace tutti {

constexpr const char* name_of(BuiltIn which) noexcept {
  switch (which) {
    case BuiltIn::none:
      return "user";
    case BuiltIn::sum:
      return "sum";
    case BuiltIn::product:
      return "prod";
    case BuiltIn::min:
      return "min";
    case BuiltIn::max:
      return "max";
    case BuiltIn::bit_and:
      return "band";
    case BuiltIn::bit_or:
      return "bor";
    case BuiltIn::bit_xor:
      return "bxor";
    case BuiltIn::logical_and:
      return "land";
    case BuiltIn::logical_or:
      return "lor";
  }
  return "?";
}

constexpr const char* name_of(ElementType type) noexcept {
  switch (type) {
    case ElementType::other:
      return "other";
    case ElementType::int32:
      return "int32";
    case ElementType::uint32:
      return "uint32";
    case ElementType::int64:
      return "int64";
    case ElementType::uint64:
      return "uint64";
    case ElementType::float32:
      return "float";
    case ElementType::float64:
      return "double";
    case ElementType::float16:
      return "half";
    case ElementType::bfloat16:
      return "bfloat16";
  }
  return "?";
}

constexpr const char* name_of(Algorithm algorithm) noexcept {
  switch (algorithm) {
    case Algorithm::automatic:
      return "automatic";
    case Algorithm::dissemination:
      return "dissemination";
    case Algorithm::two_partial:
      return "two_partial_dissemination";
    case Algorithm::recursive_multiplying:
      return "recursive_multiplying";
    case Algorithm::nway:
      return "nway";
    case Algorithm::nway_inverse:
      return "nway_inverse";
    case Algorithm::decomposition:
      return "decomposition";
    case Algorithm::decomposition_digits:
      return "decomposition_digits";
    case Algorithm::canonical_dissemination:
      return "canonical_dissemination";
    case Algorithm::chunked_fold:
      return "chunked_fold";
    case Algorithm::ring:
      return "ring";
    case Algorithm::shared_ring:
      return "shared_ring";
    case Algorithm::circulant:
      return "circulant";
    case Algorithm::canonical_halving:
      return "canonical_halving";
  }
  return "?";
}

constexpr const char* name_of(Notify notify) noexcept {
  switch (notify) {
    case Notify::immediate:
      return "immediate";
    case Notify::flag:
      return "flag";
  }
  return "?";
}

constexpr const char* name_of(Across across) noexcept {
  switch (across) {
    case Across::automatic:
      return "automatic";
    case Across::flat:
      return "flat";
    case Across::leader:
      return "leader";
    case Across::lanes:
      return "lanes";
  }
  return "?";
}

constexpr const char* name_of(Tree tree) noexcept {
  switch (tree) {
    case Tree::automatic:
      return "automatic";
    case Tree::knomial:
      return "knomial";
    case Tree::binomial:
      return "binomial";
    case Tree::fibonacci:
      return "fibonacci";
  }
  return "?";
}

constexpr const char* name_of(Agreement agreement) noexcept {
  switch (agreement) {
    case Agreement::identical:
      return "identical";
    case Agreement::reproducible:
      return "reproducible";
    case Agreement::relaxed:
      return "relaxed";
  }
  return "?";
}

constexpr const char* name_of(Placement placement) noexcept {
  switch (placement) {
    case Placement::block:
      return "block";
    case Placement::cyclic:
      return "cyclic";
    case Placement::random:
      return "random";
  }
  return "?";
}

constexpr const char* name_of(CheckLevel level) noexcept {
  switch (level) {
    case CheckLevel::off:
      return "off";
    case CheckLevel::local:
      return "local";
    case CheckLevel::collective:
      return "collective";
  }
  return "?";
}

constexpr const char* name_of(WaitPolicy policy) noexcept {
  switch (policy) {
    case WaitPolicy::automatic:
      return "automatic";
    case WaitPolicy::spin:
      return "spin";
    case WaitPolicy::yield:
      return "yield";
    case WaitPolicy::block:
      return "block";
  }
  return "?";
}

}  // namespace tutti
