// Promises: the page of a tuning file needs nothing from elsewhere, its markup is well formed
// whatever names the file has, and its pictures show the numbers of the file.
#include "microbench/tune_report.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <vector>

namespace tutti::bench {
namespace {

using tune::Collective;

/// Races of two schedules, as they would be on FDR if the model were off by a little.
tune::Tuning example() {
  tune::Tuning tuning;
  tuning.made_on = {.device = "mlx5_0", .link = "InfiniBand", .gigabits_per_second = 56};
  tuning.machine = tune::machine_preset("fdr");
  tuning.machine.name = "lab";
  for (const std::uint64_t bytes : {0u, 8u, 256u, 4096u, 65536u, 1u << 20}) {
    const auto model = static_cast<plan::Picoseconds>(4'000'000 + bytes * 300);
    tuning.findings.push_back(
        {.collective = Collective::allreduce,
         .bytes = bytes,
         .nodes = 16,
         .ranks_per_node = 1,
         .operators = tune::OperatorClass::rounding,
         .winner = {"recursive_multiplying with 3,3 a round", model * 11 / 10, model},
         .others = {{"circulant with 1,1,1,1 a round", model * 3 / 2, model * 13 / 10}}});
  }
  tuning.findings.push_back({.collective = Collective::barrier,
                             .nodes = 16,
                             .ranks_per_node = 2,
                             .winner = {"dissemination with 3,3 a round", 2'000'000, 2'000'000}});
  tuning.rules = {{.collective = Collective::reduce, .tree = Tree::binomial}};
  return tuning;
}

std::string page_of(const tune::Tuning& tuning) {
  return report_page(tuning, "a.json", by_price(tuning));
}

/// Every element that is opened is closed, in order, but for those of HTML that need not be.
void expect_well_formed(const std::string& page) {
  const std::set<std::string> alone = {"meta", "th", "td", "!DOCTYPE"};
  std::vector<std::string> open;
  for (std::size_t at = page.find('<'); at != std::string::npos; at = page.find('<', at + 1)) {
    const std::size_t end = page.find('>', at);
    ASSERT_NE(end, std::string::npos);
    const std::string tag = page.substr(at + 1, end - at - 1);
    const std::string name =
        tag.substr(tag[0] == '/' ? 1 : 0, tag.find_first_of(" /\n", 1) - (tag[0] == '/' ? 1 : 0));
    if (alone.contains(name) || tag.back() == '/') continue;
    if (tag[0] == '/') {
      ASSERT_FALSE(open.empty()) << tag;
      ASSERT_EQ(open.back(), tag.substr(1)) << page.substr(at > 200 ? at - 200 : 0, 300);
      open.pop_back();
    } else {
      open.push_back(name);
    }
  }
  EXPECT_TRUE(open.empty()) << open.back();
}

struct Point {
  double x, y;
  std::string says;
};
/// The points of the picture of that title.
std::vector<Point> points_of(const std::string& page, const std::string& title) {
  std::vector<Point> points;
  const std::size_t begin = page.find("<title>" + title);
  EXPECT_NE(begin, std::string::npos) << title;
  if (begin == std::string::npos) return points;
  const std::string svg = page.substr(begin, page.find("</svg>", begin) - begin);
  for (std::size_t at = svg.find("<circle"); at != std::string::npos;
       at = svg.find("<circle", at + 1)) {
    const auto number = [&](const char* key) {
      return std::strtod(svg.c_str() + svg.find(key, at) + std::string(key).size(), nullptr);
    };
    const std::size_t says = svg.find("<title>", at) + 7;
    points.push_back(
        {number("cx=\""), number("cy=\""), svg.substr(says, svg.find('<', says) - says)});
  }
  return points;
}

TEST(TuneReport, the_page_needs_nothing_else) {
  const std::string page = page_of(example());
  for (const char* reference : {"http", "src=", "href=", "url(", "@import", "<script", "<link"})
    EXPECT_EQ(page.find(reference), std::string::npos) << reference;
  expect_well_formed(page);
  for (const char* heading :
       {"Machine", "Latency over bytes", "Messages per round over nodes", "Crossovers",
        "Model against measurement", "Residuals of the fit", "Rules", "Findings"})
    EXPECT_NE(page.find(std::string("<h2>") + heading + "</h2>"), std::string::npos) << heading;
  if (const char* file = std::getenv("TUTTI_TEST_PAGE"))  // to look at
    std::ofstream(file) << page;
}

TEST(TuneReport, names_do_not_become_markup) {
  tune::Tuning tuning = example();
  tuning.made_on.cpu = "<script>alert(1)</script>";
  tuning.findings[0].winner.choice = "\"><script>alert(2)</script>";
  tuning.machine.name = "</title>";
  const std::string page = report_page(tuning, "<b>'\"&.json", by_price(tuning));
  EXPECT_EQ(page.find("<script"), std::string::npos);
  expect_well_formed(page);
}

TEST(TuneReport, residuals_of_the_fit_stand_at_their_bytes_and_percents) {
  tune::Tuning tuning = example();
  EXPECT_NE(page_of(tuning).find("no times that its machine was fitted to"), std::string::npos);
  using tune::Probe;
  tuning.probe_times = {
      {.probe = Probe::one_way, .bytes = 8, .measured = 1'000'000, .predicted = 900'000},
      {.probe = Probe::stream,
       .bytes = 8,
       .messages = 4,
       .measured = 1'000'000,
       .predicted = 1'000'000},
      {.probe = Probe::one_way, .bytes = 4096, .measured = 2'000'000, .predicted = 2'200'000}};
  const std::string page = page_of(tuning);
  expect_well_formed(page);
  const auto points = points_of(page, "residuals of the fit");
  ASSERT_EQ(points.size(), 3u);
  EXPECT_EQ(points[0].x, points[1].x);
  EXPECT_LT(points[0].x, points[2].x);
  // A measurement 10 % above the model is drawn as far up as one 10 % below it is down.
  EXPECT_LT(points[0].y, points[1].y);
  EXPECT_NEAR(points[1].y - points[0].y, points[2].y - points[1].y, 0.2);
  EXPECT_NE(points[1].says.find("stream: 4 x 8 bytes"), std::string::npos) << points[1].says;
}

TEST(TuneReport, latencies_stand_at_their_bytes_and_times) {
  const auto points = points_of(page_of(example()), "latency over bytes: allreduce, 16 nodes");
  ASSERT_EQ(points.size(), 12u);
  // Two families, each from left to right; three halves over eleven tenths apart all the way.
  double apart = 0;
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_NE(points[i].says.find("circulant"), std::string::npos);
    EXPECT_NE(points[i + 6].says.find("recursive_multiplying"), std::string::npos);
    EXPECT_EQ(points[i].x, points[i + 6].x);
    EXPECT_LT(points[i].y, points[i + 6].y) << "slower ones are higher";
    if (i > 0) {
      EXPECT_GT(points[i].x, points[i - 1].x);
      EXPECT_NEAR(points[i + 6].y - points[i].y, apart, 0.2);
    }
    apart = points[i + 6].y - points[i].y;
  }
  EXPECT_NE(points[7].says.find("8 bytes: measured 4.403 us, model 4.002 us"), std::string::npos)
      << points[7].says;
  // From 8 to 256 bytes are 5 doublings, to 4096 9 of them.
  EXPECT_NEAR((points[3].x - points[1].x) / (points[2].x - points[1].x), 9.0 / 5, 0.02);
}

TEST(TuneReport, what_the_model_says_exactly_stands_on_the_diagonal) {
  const std::string page = page_of(example());
  const auto points = points_of(page, "model against measurement");
  ASSERT_EQ(points.size(), 13u);
  const std::size_t begin = page.find("<title>model against measurement");
  const std::size_t diagonal = page.find("stroke-opacity=\"0.80\"", begin);
  const std::string line = page.substr(page.rfind("<line", diagonal), 100);
  const auto number = [&](const char* key) {
    return std::strtod(line.c_str() + line.find(key) + 4, nullptr);
  };
  const double slope = (number("y2=") - number("y1=")) / (number("x2=") - number("x1="));
  const Point& barrier = points.back();
  ASSERT_NE(barrier.says.find("barrier"), std::string::npos);
  EXPECT_NEAR(barrier.y, number("y1=") + slope * (barrier.x - number("x1=")), 0.3);
  EXPECT_LT(points[0].y, number("y1=") + slope * (points[0].x - number("x1=")) - 3)
      << "what takes longer than the model says is above it";
}

TEST(TuneReport, residuals_are_those_of_the_winners) {
  const auto of_winners = points_of(page_of(example()), "residuals of the winners");
  ASSERT_EQ(of_winners.size(), 7u);
  EXPECT_NE(of_winners[0].says.find("+9.1 %"), std::string::npos) << of_winners[0].says;
}

TEST(TuneReport, what_only_a_card_can_show_is_of_the_model) {
  tune::Tuning tuning = example();
  tuning.machine[tune::Parameter::gap].origin = tune::Origin::measured;
  EXPECT_EQ(page_of(tuning).find("<td>model<td>"), std::string::npos);
  tuning.made_on.device = "soft0";
  const std::string page = page_of(tuning);
  EXPECT_NE(page.find("<td>model<td>g, a message"), std::string::npos);
  EXPECT_NE(page.find("model: measured on the software device"), std::string::npos);
  expect_well_formed(page);
}

TEST(TuneReport, vectors_and_crossovers_are_what_is_chosen) {
  const tune::Tuning tuning = example();
  const std::string page = page_of(tuning);
  const tune::Choice choice =
      by_price(tuning)({.collective = Collective::barrier}, {.rank_count = 96});
  EXPECT_NE(page.find("<title>96 nodes: " + tune::family_of(choice.name()) + " with " +
                      tune::text_of(choice.variant().per_round) + " a round</title>"),
            std::string::npos);
  // As many boxes for 96 ranks as there are rounds.
  const std::size_t begin = page.find("<title>messages per round over nodes: barrier");
  const std::string svg = page.substr(begin, page.find("</svg>", begin) - begin);
  std::size_t boxes = 0;
  for (std::size_t at = svg.find("<title>96 nodes:"); at != std::string::npos;
       at = svg.find("<title>96 nodes:", at + 1))
    ++boxes;
  EXPECT_EQ(boxes, choice.variant().per_round.size());
  // Every band of every row begins where the one before it ends.
  const std::size_t from = page.find("<title>what is chosen over bytes: allreduce, 1 rank a node");
  ASSERT_NE(from, std::string::npos);
  const std::string bands = page.substr(from, page.find("</svg>", from) - from);
  for (const char* nodes : {"2", "16", "96"}) {
    std::string expected = "8";
    const std::string row = std::string("<title>") + nodes + " nodes, ";
    std::size_t count = 0;
    for (std::size_t at = bands.find(row); at != std::string::npos;
         at = bands.find(row, at + 1), ++count) {
      const std::string text = bands.substr(at + row.size(), 60);
      EXPECT_EQ(text.substr(0, text.find(' ')), expected);
      expected = text.substr(text.find(" to ") + 4);
      expected = expected.substr(0, expected.find(' '));
    }
    EXPECT_GT(count, 1u) << nodes;
    EXPECT_EQ(expected, std::to_string(4u << 20));
  }
}

TEST(TuneReport, a_file_of_nothing_has_a_page) {
  const std::string page = page_of({});
  expect_well_formed(page);
  EXPECT_NE(page.find("Nothing was measured that has a price."), std::string::npos);
}

TEST(TuneReport, a_chooser_that_refuses_leaves_gaps) {
  const std::string page = report_page(example(), "a.json", [](const auto&, const auto&) {
    throw Error(ErrorCode::unsupported, "no");
    return tune::Choice();
  });
  expect_well_formed(page);
}

}  // namespace
}  // namespace tutti::bench
