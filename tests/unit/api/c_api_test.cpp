// Promise: the C interface can grow: structs of programs that were built with an older or a newer
// header are read as far as both know them, and never misread.
#include "api/c_api.hpp"

#include <gtest/gtest.h>

namespace tutti::api {
namespace {

struct First {
  std::size_t struct_size;
  std::int64_t count;
};
struct Second {  // what a later version has made of it
  std::size_t struct_size;
  std::int64_t count;
  std::int64_t added;
};

}  // namespace

template <>
inline constexpr std::size_t first_version_bytes<First> = sizeof(First);
template <>
inline constexpr std::size_t first_version_bytes<Second> = sizeof(First);

namespace {

/// Read by a library that has `Known`.
template <class Known>
std::string refusal_of(const auto* given) {
  try {
    (void)known_part(reinterpret_cast<const Known*>(given), "arguments");
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
}

TEST(StructsOfC, are_read_as_far_as_both_know_them) {
  const First same{sizeof same, 7};
  EXPECT_EQ(known_part(&same, "arguments").count, 7);
  const Second newer{sizeof newer, 8, 0};
  EXPECT_EQ(known_part(reinterpret_cast<const First*>(&newer), "arguments").count, 8);
  const Second memory{sizeof(First), 9, 1};  // of which only the First is there
  const Second read = known_part(&memory, "arguments");
  EXPECT_EQ(read.count, 9);
  EXPECT_EQ(read.added, 0);
}

TEST(StructsOfC, say_what_is_not_known) {
  const Second asks_for_more{sizeof asks_for_more, 8, 1};
  EXPECT_NE(refusal_of<First>(&asks_for_more).find("struct_size 24: expected 16, or zeros"),
            std::string::npos);
  const First unset{0, 7};
  EXPECT_NE(refusal_of<First>(&unset).find("struct_size 0: expected 16"), std::string::npos);
  EXPECT_NE(refusal_of<Second>(&unset).find("struct_size 0: expected 24"), std::string::npos);
  const First stray{std::size_t{1} << 40, 7};
  EXPECT_NE(refusal_of<First>(&stray).find("struct_size 1099511627776: expected 16"),
            std::string::npos);
  EXPECT_EQ(refusal_of<First>(static_cast<const First*>(nullptr)),
            "arguments NULL: expected a pointer to them");
}

TEST(TextsForC, are_cut_and_say_so) {
  tutti_failure failure;
  detail::set_text(failure, "short");
  EXPECT_STREQ(failure.text, "short");
  const std::string fits(sizeof failure.text - 1, 'x');
  detail::set_text(failure, fits);
  EXPECT_EQ(failure.text, fits);
  detail::set_text(failure, fits + "y");
  EXPECT_EQ(failure.text, fits.substr(3) + "...");

  char room[4] = "???";
  const auto four = [] { return "four"; };
  EXPECT_EQ(write_text(room, sizeof room, four), 4u);
  EXPECT_STREQ(room, "fou");
  EXPECT_EQ(write_text(room, 0, four), 4u);
  EXPECT_EQ(write_text(nullptr, 8, four), 4u);
  EXPECT_STREQ(room, "fou");
}

TEST(ExceptionsAtC, become_failures) {
  tutti_failure failure;
  const auto status_of = [&](auto thrown) {
    return detail::at_c_boundary(&failure, [&] { throw thrown; });
  };
  EXPECT_EQ(status_of(Error(ErrorCode::mismatch, "differ", 5)), TUTTI_SETUP_FAILED);
  EXPECT_EQ(failure.error, TUTTI_ERROR_MISMATCH);
  EXPECT_EQ(failure.system_errno, 5);
  EXPECT_STREQ(failure.text, "differ");
  EXPECT_EQ(status_of(std::bad_alloc()), TUTTI_SETUP_FAILED);
  EXPECT_EQ(failure.error, TUTTI_ERROR_LIMIT_EXCEEDED);
  EXPECT_EQ(status_of(std::runtime_error("odd")), TUTTI_SETUP_FAILED);
  EXPECT_STREQ(failure.text, "odd");
  EXPECT_EQ(status_of(42), TUTTI_SETUP_FAILED);
  EXPECT_EQ(failure.error, TUTTI_ERROR_SYSTEM);
}

}  // namespace
}  // namespace tutti::api
