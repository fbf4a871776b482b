#include "verbs/soft/fabric_model.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <tutti/status.hpp>

// In a namespace without a name, the library has no symbol outside this file: a program that is
// linked with tutti may have another version of it.
#define NLOHMANN_JSON_NAMESPACE nlohmann
#define NLOHMANN_JSON_NAMESPACE_BEGIN \
  namespace nlohmann {                \
  inline namespace {
#define NLOHMANN_JSON_NAMESPACE_END \
  }                                 \
  }
#include <nlohmann/json.hpp>

namespace tutti::verbs::soft {
namespace {

using Json = nlohmann::json;

constexpr double ps_per_us = 1e6;
constexpr double longest_us = 60e6;   // a minute
constexpr double lowest_rate = 1e-4;  // GB/s; with these bounds no sum of times overflows
constexpr double factor_max = 1e3;
constexpr std::size_t file_max_bytes = std::size_t{16} << 20;
constexpr int depth_max = 8;
constexpr std::size_t quoted_max = 80;
constexpr std::size_t reason_max = 300;  // of the JSON reader, which quotes what it has read last

/// Data rates: InfiniBand roadmap, 4 lanes (QDR 32 Gb/s after 8b/10b; FDR 54.5, EDR 97.0, HDR 194
/// and NDR 388 Gb/s after 64b/66b); 10, 25 and 100 Gb/s Ethernet, of which RoCE v2 leaves 1024 of
/// 1106 bytes for packets of 1024 bytes (preamble and gap 20, Ethernet 18, IP 20, UDP 8, BTH 12,
/// ICRC 4).  FDR's 6.8 GB/s, and all latencies, overheads and gaps are assumptions of the order of
/// what vendors state for one switch in between: measure and write a file where more matters.
struct Preset {
  const char* name;
  double latency_us, send_overhead_us, receive_overhead_us, gap_us, gigabytes_per_second;
};
constexpr Preset presets[] = {
    {"qdr", 1.0, 0.20, 0.10, 0.150, 4.0},    {"fdr", 0.7, 0.15, 0.05, 0.100, 6.8},
    {"edr", 0.6, 0.12, 0.05, 0.050, 12.1},   {"hdr", 0.6, 0.10, 0.05, 0.025, 24.2},
    {"ndr", 0.6, 0.10, 0.05, 0.015, 48.4},   {"roce100", 0.9, 0.12, 0.05, 0.050, 11.6},
    {"roce25", 1.1, 0.12, 0.05, 0.050, 2.9}, {"roce10", 1.3, 0.15, 0.05, 0.100, 1.16},
};

/// Round figures for ranks on cores of one socket that share no cache: the time of a line between
/// such cores, the cost of a word and its line to their writer and reader, a copy at 10 GB/s, and
/// the system call by which a payload is read where it is.  EMULATION.md has measured and published
/// figures beside them.
constexpr FabricModel::Inside inside_of_presets = {.latency = 100'000,
                                                   .send_overhead = 20'000,
                                                   .per_byte = 100,
                                                   .receive_overhead = 20'000,
                                                   .read_overhead = 500'000,
                                                   .read_per_byte = 100};

Picoseconds from_us(double us) {
  assert(us >= 0);
  assert(us <= longest_us);
  return std::llround(us * ps_per_us);
}

FabricModel model_of(const Preset& preset) {
  assert(preset.gigabytes_per_second > 0);
  FabricModel model;
  model.name = preset.name;
  model.latency = from_us(preset.latency_us);
  model.send_overhead = from_us(preset.send_overhead_us);
  model.receive_overhead = from_us(preset.receive_overhead_us);
  model.gap = from_us(preset.gap_us);
  model.per_byte = 1000 / preset.gigabytes_per_second;
  model.inside = inside_of_presets;
  return model;
}

[[noreturn]] void refuse(const std::string& file, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, "fabric \"" + file + "\": " + what);
}

std::string place_in(const std::string& text, std::size_t byte) {
  const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(byte, text.size()));
  const auto line = 1 + std::count(text.begin(), end, '\n');
  const auto start = std::find(std::make_reverse_iterator(end), text.rend(), '\n').base();
  return "line " + std::to_string(line) + ", column " + std::to_string(end - start);
}

/// In one line, and not at length.
std::string shortened(const Json& value) {
  return value.dump().substr(0, quoted_max);
}

/// Reads the members of one object by name; a member that nobody has asked for is unknown.
class Reader {
 public:
  Reader(const std::string& file, std::string where, const Json& object)
      : file_(file), where_(std::move(where)), object_(object) {
    if (!object.is_object())
      refuse(file_, where_ + " is " + shortened(object) + "; expected an object");
  }

  double number(const char* name, double otherwise, double least, double most) {
    const Json* value = find(name);
    if (!value) return otherwise;
    if (!value->is_number() || value->get<double>() < least || value->get<double>() > most)
      expected(name, *value, "a number from " + text_of(least) + " to " + text_of(most));
    return value->get<double>();
  }
  Picoseconds time(const char* name, Picoseconds otherwise = 0) {
    const double us = static_cast<double>(otherwise) / ps_per_us;
    return from_us(number(name, us, 0, longest_us));
  }
  double probability(const char* name) { return number(name, 0, 0, 1); }
  std::uint64_t count(const char* name, std::uint64_t otherwise) {
    const Json* value = find(name);
    if (!value) return otherwise;
    if (!value->is_number_unsigned()) expected(name, *value, "a whole number from 0");
    return value->get<std::uint64_t>();
  }
  const Json* find(const char* name) {
    known_.emplace_back(name);
    const auto place = object_.find(name);
    return place == object_.end() ? nullptr : &*place;
  }
  const Json* list(const char* name) {
    const Json* value = find(name);
    if (value && !value->is_array()) expected(name, *value, "a list");
    return value;
  }
  /// A member that must be there; finish() refuses the file if one was missing.
  std::uint32_t required_place() {
    constexpr std::uint64_t places_max = 1 << 20;
    const std::uint64_t place = require("place") ? count("place", 0) : 0;
    if (place >= places_max)
      expected("place", *find("place"), "a rank below " + std::to_string(places_max));
    return static_cast<std::uint32_t>(place);
  }
  double required_number(const char* name, double least, double most) {
    return require(name) ? number(name, least, least, most) : least;
  }

  void finish() const {
    const auto is_known = [&](const std::string& name) {
      return std::find(known_.begin(), known_.end(), name) != known_.end();
    };
    std::string names;
    for (const std::string& one : known_) {
      names += names.empty() ? "" : ", ";
      names += one;
    }
    auto member = object_.begin();
    while (member != object_.end() && is_known(member.key())) ++member;
    if (member != object_.end())
      refuse(file_, shortened(member.key()) + " is unknown in " + where_ + "; expected " + names);
    if (!missing_.empty()) refuse(file_, where_ + " lacks \"" + missing_ + "\"");
  }
  [[noreturn]] void expected(const char* name, const Json& value, const std::string& what) const {
    refuse(file_, "\"" + std::string(name) + "\" in " + where_ + " is " + shortened(value) +
                      "; expected " + what);
  }

 private:
  bool require(const char* name) {
    if (find(name)) return true;
    if (missing_.empty()) missing_ = name;
    return false;
  }
  static std::string text_of(double number) { return Json(number).dump(); }

  const std::string& file_;
  std::string where_;
  const Json& object_;
  std::vector<std::string> known_;
  std::string missing_;
};

std::vector<std::vector<Picoseconds>> read_latencies(Reader& reader) {
  constexpr const char* name = "latencies_us";
  constexpr const char* shape = "a square list of lists of microseconds";
  const Json* rows = reader.list(name);
  if (!rows) return {};
  std::vector<std::vector<Picoseconds>> latencies;
  for (const Json& row : *rows) {
    if (!row.is_array() || row.size() != rows->size()) reader.expected(name, row, shape);
    auto& read = latencies.emplace_back();
    for (const Json& us : row) {
      if (!us.is_number() || us.get<double>() < 0 || us.get<double>() > longest_us)
        reader.expected(name, us, shape);
      read.push_back(from_us(us.get<double>()));
    }
  }
  if (latencies.empty()) reader.expected(name, *rows, shape);
  return latencies;
}

FabricModel::Faults read_faults(const std::string& file, const Json& object) {
  Reader reader(file, "\"faults\"", object);
  FabricModel::Faults faults;
  faults.seed = reader.count("seed", 1);
  faults.delay_probability = reader.probability("delay_probability");
  faults.delay = reader.time("delay_us");
  faults.drop_probability = reader.probability("drop_probability");
  faults.not_ready_probability = reader.probability("not_ready_probability");
  if (faults.delay_probability > 0 && faults.delay == 0)
    refuse(file, "\"delay_us\" is missing in \"faults\"; expected the longest delay");
  if (const Json* list = reader.list("slow"))
    for (const Json& one : *list) {
      Reader slow(file, "\"slow\"", one);
      faults.slow.push_back({slow.required_place(), slow.required_number("factor", 1, factor_max)});
      slow.finish();
    }
  if (const Json* list = reader.list("link_down"))
    for (const Json& one : *list) {
      Reader down(file, "\"link_down\"", one);
      faults.link_down.push_back({down.required_place(), down.time("from_us"),
                                  down.time("until_us", from_us(longest_us))});
      down.finish();
      if (faults.link_down.back().from >= faults.link_down.back().until)
        down.expected("until_us", one, "more than from_us");
    }
  reader.finish();
  return faults;
}

FabricModel::Inside read_inside(const std::string& file, const Json& object,
                                FabricModel::Inside inside) {
  Reader reader(file, "\"inside\"", object);
  inside.latency = reader.time("latency_us", inside.latency);
  inside.send_overhead = reader.time("send_overhead_us", inside.send_overhead);
  inside.receive_overhead = reader.time("receive_overhead_us", inside.receive_overhead);
  inside.read_overhead = reader.time("read_overhead_us", inside.read_overhead);
  if (const double rate = reader.number("gigabytes_per_second", 0, lowest_rate, 1e6); rate > 0)
    inside.per_byte = 1000 / rate;
  if (const double rate = reader.number("read_gigabytes_per_second", 0, lowest_rate, 1e6); rate > 0)
    inside.read_per_byte = 1000 / rate;
  reader.finish();
  return inside;
}

FabricModel parse(const std::string& file, const std::string& text) {
  Json document;
  const auto is_flat = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > depth_max) refuse(file, "nested too deeply; expected what EMULATION.md says");
    return true;
  };
  try {
    document = Json::parse(text, is_flat);
  } catch (const Json::parse_error& error) {
    refuse(file, "no JSON at " + place_in(text, error.byte) + " (" +
                     std::string(error.what()).substr(0, reason_max) + ")");
  } catch (const Json::exception& error) {  // a number out of range
    refuse(file, std::string(error.what()).substr(0, reason_max));
  }
  Reader reader(file, "the file", document);
  FabricModel model;
  if (const Json* preset = reader.find("preset")) {
    if (!preset->is_string()) reader.expected("preset", *preset, fabric_preset_names());
    const auto known = std::find_if(std::begin(presets), std::end(presets),
                                    [&](const Preset& one) { return *preset == one.name; });
    if (known == std::end(presets)) reader.expected("preset", *preset, fabric_preset_names());
    model = model_of(*known);
  }
  model.name = file;
  model.latency = reader.time("latency_us", model.latency);
  model.send_overhead = reader.time("send_overhead_us", model.send_overhead);
  model.receive_overhead = reader.time("receive_overhead_us", model.receive_overhead);
  model.gap = reader.time("gap_us", model.gap);
  model.rank_gap = reader.time("rank_gap_us", model.rank_gap);
  if (const double rate = reader.number("messages_per_second", 1e12, 1, 1e12); rate < 1e12)
    model.gap = std::max(model.gap, static_cast<Picoseconds>(std::llround(1e12 / rate)));
  if (const double rate = reader.number("gigabytes_per_second", 0, lowest_rate, 1e6); rate > 0)
    model.per_byte = 1000 / rate;
  model.work = reader.time("work_us", model.work);
  if (const double rate = reader.number("work_gigabytes_per_second", 0, lowest_rate, 1e6); rate > 0)
    model.work_per_byte = 1000 / rate;
  model.latencies = read_latencies(reader);
  if (const Json* inside = reader.find("inside"))
    model.inside = read_inside(file, *inside, model.inside);
  // Nothing that happens inside a node may be seen at the instant at which it begins.
  model.inside.latency = std::max<Picoseconds>(model.inside.latency, 1);
  if (const Json* faults = reader.find("faults")) model.faults = read_faults(file, *faults);
  reader.finish();
  return model;
}

Picoseconds rounded(double picoseconds) {
  return std::llround(picoseconds);
}

}  // namespace

Picoseconds FabricModel::wire_time(std::size_t bytes) const {
  assert(per_byte >= 0);
  return rounded(static_cast<double>(bytes) * per_byte);
}
Picoseconds FabricModel::port_time(std::size_t bytes) const {
  return std::max(gap, wire_time(bytes));
}
Picoseconds FabricModel::work_time(std::size_t bytes) const {
  return work + rounded(static_cast<double>(bytes) * work_per_byte);
}
Picoseconds FabricModel::Inside::store_time(std::size_t bytes) const {
  return send_overhead + rounded(static_cast<double>(bytes) * per_byte);
}
Picoseconds FabricModel::Inside::read_time(std::size_t bytes) const {
  return read_overhead + rounded(static_cast<double>(bytes) * read_per_byte);
}
Picoseconds FabricModel::Inside::copy_time(std::size_t bytes) const {
  return rounded(static_cast<double>(bytes) * read_per_byte);
}
Picoseconds FabricModel::latency_between(std::uint32_t from, std::uint32_t to) const {
  return from < latencies.size() && to < latencies.size() ? latencies[from][to] : latency;
}

FabricModel read_fabric_model(const std::string& preset_or_file) {
  for (const Preset& preset : presets)
    if (preset_or_file == preset.name) return model_of(preset);
  const std::string expectation =
      "; expected " + fabric_preset_names() + ", or the path of a JSON file";
  std::error_code error;
  if (!std::filesystem::exists(preset_or_file, error))
    refuse(preset_or_file, "no preset and no such file" + expectation);
  if (!std::filesystem::is_regular_file(preset_or_file, error))
    refuse(preset_or_file, "no regular file" + expectation);
  const auto bytes = std::filesystem::file_size(preset_or_file, error);
  if (bytes > file_max_bytes)
    refuse(preset_or_file,
           std::to_string(bytes) + " bytes; expected at most " + std::to_string(file_max_bytes));
  std::ifstream file(preset_or_file);
  std::string text(bytes + 1, '\0');  // one more, so that the end is met
  if (!file.read(text.data(), static_cast<std::streamsize>(text.size())).eof())
    refuse(preset_or_file, "cannot be read" + expectation);
  text.resize(static_cast<std::size_t>(file.gcount()));
  return parse(preset_or_file, text);
}

std::string fabric_preset_names() {
  std::string names;
  for (const Preset& preset : presets)
    names += (names.empty() ? "" : ", ") + std::string(preset.name);
  return names;
}

}  // namespace tutti::verbs::soft
