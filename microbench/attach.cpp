#include "microbench/attach.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <tutti/detail/descriptor.hpp>
#include <tutti/detail/number_in.hpp>
#include <tutti/status.hpp>
#include <vector>

#include "runtime/report.hpp"
#include "verbs/arena.hpp"

namespace tutti::bench {
namespace {

namespace files = std::filesystem;

/// The id that the process has in its own namespace.
std::uint64_t own_id_of(std::int32_t process) {
  std::ifstream file(fmt::format("/proc/{}/status", process));
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("NSpid:"))
      return detail::number_in<std::uint64_t>(line.substr(line.find_last_of("\t ") + 1))
          .value_or(0);
  return 0;
}

/// Whether this page is of memory that the process offers itself, and was not seen before.
bool is_own(const std::byte* page, std::uint64_t own_id, std::set<std::uint64_t>& nonces) {
  std::uint64_t nonce = 0;
  std::memcpy(&nonce, page, sizeof nonce);
  runtime::ActivityBoard board;
  std::memcpy(&board, page + runtime::ActivityBoard::offset, sizeof board);
  const bool is_known = board.layout == runtime::ActivityBoard::current_layout;
  return nonces.insert(nonce).second && (!is_known || board.process == own_id);
}

/// The first pages of the memory that the process offers to its node, one of each context.
std::vector<detail::Mapping> first_pages(std::int32_t process) {
  const files::path folder = fmt::format("/proc/{}/fd", process);
  std::error_code problem;
  std::vector<detail::Mapping> pages;
  std::set<std::uint64_t> nonces;
  const std::uint64_t own_id = own_id_of(process);
  for (files::directory_iterator entry(folder, problem), end; !problem && entry != end;
       entry.increment(problem)) {
    std::error_code unreadable;
    const std::string target = files::read_symlink(entry->path(), unreadable);
    if (unreadable || !target.starts_with("/memfd:tutti-arena")) continue;
    const detail::Descriptor file(::open(entry->path().c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) continue;
    void* const page =
        ::mmap(nullptr, verbs::Arena::header_bytes, PROT_READ, MAP_SHARED, file.get(), 0);
    detail::Mapping mapping(page, verbs::Arena::header_bytes);
    if (mapping && is_own(mapping.data(), own_id, nonces)) pages.push_back(std::move(mapping));
  }
  if (problem)
    throw Error(ErrorCode::system,
                fmt::format("attach {}: {}: {}; expected the id of a process of this user, in this "
                            "namespace of processes",
                            process, folder.string(), problem.message()),
                problem.value());
  return pages;
}

}  // namespace

std::string attach(const std::string& process, const std::string& format) {
  if (format != "table" && format != "json")
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--format=\"{}\": expected table or json", format));
  const std::int32_t id = detail::number_in<std::int32_t>(process).value_or(0);
  if (id <= 0)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("attach \"{}\": expected the id of a process", process));
  const bool is_json = format == "json";
  std::string text;
  for (const detail::Mapping& page : first_pages(id)) {
    const runtime::SeenProcess seen =
        runtime::look_at(id, page.data(), runtime::LookFor::operations_and_waits);
    if (is_json) text += (text.empty() ? "[" : ",") + runtime::json_of(seen);
    if (!is_json) text += runtime::text_of(seen);
  }
  if (is_json && !text.empty()) text += "]\n";
  if (text.empty())
    throw Error(ErrorCode::system,
                fmt::format("attach {}: this process has no context of tutti", process));
  return text;
}

}  // namespace tutti::bench
