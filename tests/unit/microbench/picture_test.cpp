// Promises: values stand where their axis says, marks are round, and no text becomes markup.
#include "microbench/picture.hpp"

#include <gtest/gtest.h>

#include <string>

namespace tutti::bench {
namespace {

TEST(Picture, values_stand_where_the_axis_says) {
  const Axis linear{.first = 0, .last = 10, .begin = 100, .end = 200};
  EXPECT_DOUBLE_EQ(linear.at(0), 100);
  EXPECT_DOUBLE_EQ(linear.at(2.5), 125);
  const Axis downwards{.first = 0, .last = 10, .begin = 200, .end = 100};
  EXPECT_DOUBLE_EQ(downwards.at(2.5), 175);
  const Axis logarithmic{.first = 8, .last = 128, .begin = 0, .end = 400, .is_logarithmic = true};
  EXPECT_DOUBLE_EQ(logarithmic.at(8), 0);
  EXPECT_DOUBLE_EQ(logarithmic.at(32), 200);
  EXPECT_DOUBLE_EQ(logarithmic.at(128), 400);
  const Axis single{.first = 8, .last = 8, .begin = 0, .end = 400, .is_logarithmic = true};
  EXPECT_DOUBLE_EQ(single.at(8), 200);
}

std::string labels_of(const Axis& axis) {
  std::string text;
  for (const Mark& mark : round_marks(axis)) text += (text.empty() ? "" : " ") + mark.label;
  return text;
}

TEST(Picture, marks_are_round) {
  EXPECT_EQ(labels_of({.first = 0, .last = 10}), "0 2 4 6 8 10");
  EXPECT_EQ(labels_of({.first = -11, .last = 11}), "-10 -5 0 5 10");
  EXPECT_EQ(labels_of({.first = 0, .last = 1}), "0 0.2 0.4 0.6 0.8 1");
  EXPECT_EQ(labels_of({.first = 1.5, .last = 30, .is_logarithmic = true}), "2 5 10 20");
  EXPECT_EQ(labels_of({.first = 0.5, .last = 2000, .is_logarithmic = true}), "1 10 100 1000");
  EXPECT_EQ(labels_of({.first = 3, .last = 3}), "3");
}

TEST(Picture, no_text_becomes_markup) {
  EXPECT_EQ(escaped("<a href='x' b=\"y\">&"), "&lt;a href=&#39;x&#39; b=&quot;y&quot;&gt;&amp;");
  Picture picture(10, 10, "<script>");
  picture.text({0, 0}, "<script>");
  picture.point({0, 0}, colour(0), "<script>");
  picture.box({0, 0}, 1, 1, colour(1), 1, "</title><script>");
  EXPECT_EQ(picture.svg().find("<script>"), std::string::npos) << picture.svg();
}

TEST(Picture, what_is_drawn_is_in_it) {
  Picture picture(100, 50, "title");
  picture.curve({{1, 2}, {3, 4.25}}, colour(0), true);
  picture.point({5, 6}, colour(1), "says");
  const std::string svg = picture.svg();
  EXPECT_NE(svg.find("viewBox=\"0 0 100 50\""), std::string::npos);
  EXPECT_NE(svg.find("points=\"1.0,2.0 3.0,4.2\""), std::string::npos) << svg;
  EXPECT_NE(svg.find("cx=\"5.0\" cy=\"6.0\""), std::string::npos);
  EXPECT_NE(svg.find("<title>says</title>"), std::string::npos);
}

}  // namespace
}  // namespace tutti::bench
