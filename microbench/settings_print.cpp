#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>
#include <tutti/status.hpp>
#include <vector>

#include "microbench/info.hpp"
#include "microbench/report.hpp"
#include "runtime/settings_table.hpp"

namespace tutti::bench {
namespace {

constexpr std::size_t markdown_columns_max = 120;

constexpr const char* markdown_head = R"(# Settings

Which environment variables are there?

```
TUTTI_DEVICE=mlx5_0:1 TUTTI_ARENA_BYTES=64M mpirun -n 2 ./solver
tutti-info settings            # this page as text; tutti-info alone prints what is in force here
```

Options in code win over the environment. An unknown `TUTTI_*` name or a bad value is an error, which lists the names or
values that are possible. K, M and G are powers of 1024.

This page is the output of `tutti-info settings --format markdown`.
)";

/// One section for each group, in the order of the table.
template <class Begin, class Row>
void for_each_group(const Begin& begin, const Row& row) {
  const runtime::Setting* previous = nullptr;
  for (const runtime::Setting& setting : runtime::settings()) {
    if (previous == nullptr || previous->group != setting.group) begin(setting.group);
    row(setting);
    previous = &setting;
  }
}

std::string as_table() {
  std::vector<InfoSection> sections;
  for_each_group(
      [&](runtime::SettingGroup group) {
        sections.push_back({.title = name_of(group), .lines = {}});
      },
      [&](const runtime::Setting& setting) {
        sections.back().lines.emplace_back(
            setting.name,
            fmt::format("{} [{}; default: {}]", setting.decides, setting.values, setting.fallback));
      });
  return text_of(sections);
}

std::string as_json() {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const runtime::Setting& setting : runtime::settings())
    json.push_back({{"name", setting.name},
                    {"group", name_of(setting.group)},
                    {"values", setting.values},
                    {"default", setting.fallback},
                    {"decides", setting.decides},
                    {"more", setting.more}});
  return json.dump(2) + '\n';
}

/// "a|b" -> "`a`, `b`": a bar ends a cell.
std::string cell_of(std::string_view values) {
  if (values.find('|') == std::string_view::npos) return std::string(values);
  std::string cell;
  for (std::size_t begin = 0; begin <= values.size();) {
    const std::size_t bar = std::min(values.find('|', begin), values.size());
    cell += fmt::format("{}`{}`", cell.empty() ? "" : ", ", values.substr(begin, bar - begin));
    begin = bar + 1;
  }
  return cell;
}

/// An item of a list, broken at spaces.
std::string item_of(const runtime::Setting& setting) {
  return wrapped(fmt::format("* `{}`: {}", setting.name, setting.more), markdown_columns_max, 0,
                 2) +
         '\n';
}

std::string as_markdown() {
  std::string text = markdown_head, remarks;
  const auto finish = [&] {
    if (!remarks.empty()) text += '\n' + remarks;
    remarks.clear();
  };
  for_each_group(
      [&](runtime::SettingGroup group) {
        finish();
        text +=
            fmt::format("\n## {}\n\n| variable | values | default | decides |\n|---|---|---|---|\n",
                        name_of(group));
      },
      [&](const runtime::Setting& setting) {
        text += fmt::format("| `{}` | {} | {} | {} |\n", setting.name, cell_of(setting.values),
                            setting.fallback, setting.decides);
        if (*setting.more != '\0') remarks += item_of(setting);
      });
  finish();
  return text;
}

}  // namespace

std::string settings_text(const std::string& format) {
  if (format == "table") return as_table();
  if (format == "json") return as_json();
  if (format == "markdown") return as_markdown();
  throw Error(ErrorCode::invalid_argument,
              fmt::format("--format=\"{}\": expected table, json or markdown", format));
}

}  // namespace tutti::bench
