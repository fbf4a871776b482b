// Enumerations whose enumerators count from 0: the list of them, and their names.
#pragma once

#include <array>
#include <cstddef>

namespace tutti::detail {

/// All enumerators up to `last`, in order.
template <auto last>
inline constexpr auto enumerators = [] {
  std::array<decltype(last), static_cast<std::size_t>(last) + 1> all{};
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<decltype(last)>(i);
  return all;
}();

/// The name of `value`, where `names` has one for each enumerator up to `last`; "?" beyond.
template <auto last, std::size_t count>
constexpr const char* name_in(const char* const (&names)[count], decltype(last) value) noexcept {
  static_assert(count == enumerators<last>.size(), "every enumerator has a name");
  const auto index = static_cast<std::size_t>(value);
  return index < count ? names[index] : "?";
}

}  // namespace tutti::detail
