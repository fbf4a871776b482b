// An environment, a line for each variable, is refused in a sentence that names a variable of it,
// or read.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <tutti/bootstrap.hpp>
#include <tutti/communicator.hpp>
#include <tutti/status.hpp>

#include "bootstrap/socket.hpp"
#include "fuzz.hpp"
#include "runtime/settings.hpp"
#include "verbs/soft/device_list.hpp"

namespace tutti::fuzz {
namespace {

template <class Read>
void judge_reading(const Read& read) {
  try {
    read();
  } catch (const Error& error) {
    const std::string what = error.what();
    promise(error.code() == ErrorCode::invalid_argument, "a wrong setting is the user's", what);
    promise(what.find("TUTTI_") != std::string::npos ||
                what.starts_with("ranks_per_"),  // as they are called in code
            "an error names the setting", what);
  }
}

/// Which variables are set, and to what: those of the table, so that an unknown name is rare.
std::vector<std::string> set_environment(std::string_view text) {
  std::vector<std::string> names;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos || line.find('\0') != std::string::npos) continue;
    const std::string name = line.substr(0, equals);
    // A descriptor would be one of the fuzzer's own, which it would lose.
    if (!name.starts_with("TUTTI_") || name == "TUTTI_SECRET_FD") continue;
    ::setenv(name.c_str(), line.c_str() + equals + 1, 1);
    names.push_back(name);
  }
  return names;
}

}  // namespace

void judge(std::span<const std::uint8_t> input) {
  const std::vector<std::string> names = set_environment(text_of(input));
  judge_reading([] {
    const runtime::ContextSettings settings = runtime::context_settings({});
    promise(settings.arena_bytes <= runtime::arena_bytes_max, "an arena fits the address space");
    promise(settings.setup_timeout > Timeout::zero(), "a timeout is more than nothing");
  });
  judge_reading([] {
    const TcpOptions options = TcpOptions::from_environment();
    promise(index_of(options.rank) < options.rank_count, "a rank is one of the job");
    promise(options.timeout > Timeout::zero(), "a timeout is more than nothing");
    const bootstrap::Endpoint endpoint = bootstrap::parse_endpoint(options.rendezvous);
    promise(!endpoint.host.empty() && !endpoint.port.empty(), "a rendezvous has both");
  });
  const std::string_view text = text_of(input);
  std::vector<verbs::soft::DeviceSetting> devices;
  if (verbs::soft::parse_devices(text, devices).empty()) {
    promise(!devices.empty(), "there is a device", text);
    (void)verbs::soft::parse_links_down(text.substr(0, text.size() / 2), devices);
  }
  for (const std::string& name : names) ::unsetenv(name.c_str());
}

std::vector<std::string> seeds() {
  return {
      "TUTTI_DEVICE=soft0:1\nTUTTI_ARENA_BYTES=64M\nTUTTI_CONNECTIONS_MAX=8\n"
      "TUTTI_CHECK=local\nTUTTI_PER_ROUND=3,2,1\nTUTTI_CHUNK_BYTES=96K\n",
      "TUTTI_SINGLE_COPY_BYTES=never\nTUTTI_REGISTER_BUFFERS=1\nTUTTI_SHRINKABLE=1\n"
      "TUTTI_SETUP_TIMEOUT=0.5\nTUTTI_CONNECT=cm\nTUTTI_NOTIFY=flag\nTUTTI_WAIT=block\n",
      "TUTTI_SHARED_NOTIFICATIONS=words\nTUTTI_RANKS_PER_NODE=3,1,2\nTUTTI_PLACEMENT=cyclic\n"
      "TUTTI_DOMAINS_ABOVE=8\nTUTTI_RANKS_PER_DOMAIN=2\n",
      "TUTTI_TUNING=first_call\nTUTTI_TUNING_FILE=/nonexistent\nTUTTI_TUNING_BITS=keep\n"
      "TUTTI_TUNING_APPEND=1\nTUTTI_SOFT_FABRIC=hdr\n",
      "TUTTI_STRAGGLERS=1\nTUTTI_TRACE=/nonexistent/%r\nTUTTI_TRACE_BYTES=64K\n"
      "TUTTI_TRACE_SHORT_CALLS=all\n",
      "TUTTI_RANK=1\nTUTTI_SIZE=4\nTUTTI_RENDEZVOUS=[::1]:5555\nTUTTI_SECRET=horse\n"
      "TUTTI_BOOTSTRAP_TIMEOUT=30\n",
      "TUTTI_RANK=0\nTUTTI_SIZE=1\nTUTTI_RENDEZVOUS=a:1\nTUTTI_SECRET_FILE=/nonexistent\n",
      "soft0:1,soft1:2",
      "a:4,b:1,c:3,a:2,b:1"};
}

}  // namespace tutti::fuzz
