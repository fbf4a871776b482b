// What the parts of the C interface share: the objects behind its pointers, and how arguments are
// read.  Readers throw Error{invalid_argument} that names the member, its value and what it takes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <tutti/detail/c_boundary.hpp>
#include <tutti/tutti.hpp>
#include <vector>

struct tutti_context {
  tutti::Context value;
};
struct tutti_communicator {
  tutti::Communicator value;
  tutti_exchange* exchange = nullptr;  // nullptr: split off another one
};
struct tutti_operation {
  tutti::Operation value;
};
struct tutti_segment {
  tutti::Segment value;
};

namespace tutti::api {

[[noreturn]] inline void refuse(const std::string& name, const std::string& value,
                                const std::string& expected) {
  throw Error(ErrorCode::invalid_argument, name + " " + value + ": expected " + expected);
}

/// The size of a struct in the first version of the interface that had it.  Every program passes at
/// least as many bytes, and these sizes never change.  Members that are added later stand behind,
/// and are zero for programs that do not know them.
template <class Struct>
inline constexpr std::size_t first_version_bytes = 0;
template <>
inline constexpr std::size_t first_version_bytes<tutti_tcp_options> = 40;
template <>
inline constexpr std::size_t first_version_bytes<tutti_exchange_functions> = 40;
template <>
inline constexpr std::size_t first_version_bytes<tutti_context_options> = 136;
template <>
inline constexpr std::size_t first_version_bytes<tutti_barrier_arguments> = 32;
template <>
inline constexpr std::size_t first_version_bytes<tutti_allreduce_arguments> = 120;
template <>
inline constexpr std::size_t first_version_bytes<tutti_allreduce_ssp_arguments> = 96;
template <>
inline constexpr std::size_t first_version_bytes<tutti_broadcast_arguments> = 48;
template <>
inline constexpr std::size_t first_version_bytes<tutti_reduce_arguments> = 120;
template <>
inline constexpr std::size_t first_version_bytes<tutti_scan_arguments> = 88;
template <>
inline constexpr std::size_t first_version_bytes<tutti_allgather_arguments> = 32;
template <>
inline constexpr std::size_t first_version_bytes<tutti_allgatherv_arguments> = 40;
template <>
inline constexpr std::size_t first_version_bytes<tutti_alltoallv_arguments> = 56;
template <>
inline constexpr std::size_t first_version_bytes<tutti_gather_arguments> = 40;
template <>
inline constexpr std::size_t first_version_bytes<tutti_gatherv_arguments> = 56;
template <>
inline constexpr std::size_t first_version_bytes<tutti_reduce_scatter_arguments> = 96;
// Without a size of their own, they are what they are for good.
static_assert(sizeof(tutti_counts) == 16 && sizeof(tutti_block_layout) == 16 &&
              sizeof(tutti_reduction) == 56 && sizeof(tutti_failure) == 1096 &&
              sizeof(tutti_local_result) == 8);

/// As much of it as its caller and this library know; what the caller knows beyond has to be zero.
template <class Struct>
Struct known_part(const Struct* given, const char* name) {
  if (given == nullptr) refuse(name, "NULL", "a pointer to them");
  constexpr std::size_t least = first_version_bytes<Struct>, most = 4096;
  static_assert(least > 0 && least <= sizeof(Struct) && sizeof(Struct) <= most);
  const std::size_t bytes = given->struct_size;
  if (bytes < least || bytes > most)
    refuse("struct_size", std::to_string(bytes),
           std::to_string(sizeof(Struct)) + ", as set by .struct_size = sizeof of the " + name);
  const auto* const begin = reinterpret_cast<const unsigned char*>(given);
  for (std::size_t at = sizeof(Struct); at < bytes; ++at)
    if (begin[at] != 0)
      refuse("struct_size", std::to_string(bytes),
             std::to_string(sizeof(Struct)) + ", or zeros after that: this library knows no more");
  Struct known = {};
  std::memcpy(&known, given, std::min(bytes, sizeof(Struct)));
  return known;
}

/// Checks a member that has no meaning yet.
inline void require_reserved(std::int64_t value, const char* name = "reserved") {
  if (value != 0) refuse(name, std::to_string(value), "0");
}

inline std::size_t size_of(const std::string& name, std::int64_t value) {
  if (value < 0) refuse(name, std::to_string(value), "0 or more");
  return static_cast<std::size_t>(value);
}

/// 0: not given; TUTTI_NEVER: more than anything.
inline std::optional<std::size_t> size_if_given(const std::string& name, std::int64_t value) {
  if (value == 0) return std::nullopt;
  if (value == TUTTI_NEVER) return SIZE_MAX;
  return size_of(name, value);
}

/// A list of one entry for each of `count`.
inline std::vector<std::size_t> sizes_of(const std::string& name, const std::int64_t* values,
                                         std::uint32_t count) {
  if (values == nullptr) refuse(name, "NULL", "one for each rank");
  std::vector<std::size_t> sizes(count);
  for (std::uint32_t i = 0; i < count; ++i)
    sizes[i] = size_of(name + "[" + std::to_string(i) + "]", values[i]);
  return sizes;
}

inline std::vector<std::uint32_t> counts_of(const std::string& name, const tutti_counts& given) {
  require_reserved(given.reserved);
  if (given.count < 0) refuse(name + ".count", std::to_string(given.count), "0 or more");
  if (given.values == nullptr && given.count > 0)
    refuse(name + ".values", "NULL", std::to_string(given.count) + " of them");
  std::vector<std::uint32_t> counts;
  for (std::int32_t i = 0; i < given.count; ++i) {
    if (given.values[i] < 0)
      refuse(name + ".values[" + std::to_string(i) + "]", std::to_string(given.values[i]),
             "1 or more");
    counts.push_back(static_cast<std::uint32_t>(given.values[i]));
  }
  return counts;
}

inline Rank rank_of(const std::string& name, std::int32_t value, std::uint32_t rank_count) {
  if (value < 0 || static_cast<std::uint32_t>(value) >= rank_count)
    refuse(name, std::to_string(value), "0 .. " + std::to_string(rank_count - 1));
  return Rank{static_cast<std::uint32_t>(value)};
}

inline bool truth_of(const std::string& name, std::int32_t value) {
  if (value != 0 && value != 1) refuse(name, std::to_string(value), "0 or 1");
  return value == 1;
}

/// Reads an enumeration that begins at 0 in both languages and ends with `last`.
template <class Enum>
Enum enumerator_of(const std::string& name, std::int32_t value, Enum last) {
  if (value < 0 || value > static_cast<std::int32_t>(last))
    refuse(name, std::to_string(value), "0 .. " + std::to_string(static_cast<int>(last)));
  return static_cast<Enum>(value);
}

/// Reads an enumeration whose C form begins at 1, because 0 says that it is not given.
template <class Enum>
std::optional<Enum> enumerator_if_given(const std::string& name, std::int32_t value, Enum last) {
  if (value < 0 || value > static_cast<std::int32_t>(last) + 1)
    refuse(name, std::to_string(value),
           "0 (not given) .. " + std::to_string(static_cast<int>(last) + 1));
  if (value == 0) return std::nullopt;
  return static_cast<Enum>(value - 1);
}

/// What is wrong with the arguments of a collective; it is told to all ranks.
template <class F>
std::optional<Error> error_of(const char* collective, F&& read) {
  try {
    read();
    return std::nullopt;
  } catch (const Error& error) {
    return Error(error.code(), std::string(collective) + ": " + error.what());
  } catch (const std::exception& thrown) {
    return Error(ErrorCode::system, std::string(collective) + ": " + thrown.what());
  }
}

/// Where an object is to be written to; nothing is there until it is made.
template <class Object>
void need_place(Object** place, const char* name) {
  if (place == nullptr) refuse(name, "NULL", "where it is to be written to");
  *place = nullptr;
}

/// Writes the text that `make` returns, as snprintf would: the text is cut to the room that there
/// is and terminated, and the result is its whole length.  If there is no memory to make it, the
/// text is empty.
template <class F>
std::size_t write_text(char* text, std::size_t bytes, F&& make) noexcept {
  std::string whole;
  try {
    whole = make();
  } catch (const std::exception&) {
    whole.clear();
  }
  if (text != nullptr && bytes > 0) {
    const std::size_t length = std::min(whole.size(), bytes - 1);
    std::memcpy(text, whole.data(), length);
    text[length] = '\0';
  }
  return whole.size();
}

/// What the caller is to free.
template <class Object>
tutti_status free_object(Object* object) noexcept {
  delete object;
  return TUTTI_OK;
}

}  // namespace tutti::api
