// Which tuning file a process finds, and what it knows of the machine that the file has to be for.
//
// The file that the code or TUTTI_TUNING_FILE names is the only one that is looked at, and what is
// wrong with it is an error, which waits until all ranks can hear of it.  Otherwise the first file
// of a list that can be used is taken, and what is wrong with the others is a remark.
#pragma once

#include <optional>
#include <string>
#include <tutti/status.hpp>
#include <vector>

#include "runtime/settings.hpp"
#include "tune/tuning.hpp"
#include "verbs/device.hpp"
#include "verbs/wire.hpp"

namespace tutti::runtime {

/// What tells this machine from others.  A network that is emulated is another device, and where
/// time is simulated, the CPU does not matter.
tune::Fingerprint fingerprint_of(const verbs::Port& port, const ContextSettings& settings);

/// What the ranks need to know of a port.  The software device has no rate unless it emulates a
/// network, whatever it tells other programs.
verbs::PortCard port_card_of(const verbs::Port& port, const ContextSettings& settings);

/// A file that may be used here.
struct TuningTable {
  std::string path = {};
  std::string text = {};  // of the file
  tune::Tuning tuning = {};
  // Why what counts of it (TuningMode) may not hold any more, as a sentence; empty: it holds.
  std::string stale = {};
  // Why what it says of the placement of writes does not hold for this device, as a sentence;
  // empty: it does.
  std::string placement_differs = {};
};

/// What a process finds.
struct FoundTable {
  std::optional<TuningTable> table = {};
  std::vector<std::string> remarks = {};  // a line for each other file that is there, and why not
  std::optional<Error> refusal = {};      // of a file that was named
};

/// Reads the environment's directories and the files.  Throws nothing but std::bad_alloc.
FoundTable find_table(const ContextSettings& settings, const tune::Fingerprint& machine);
/// For the machine of a port, which is looked at only if there is a file.
FoundTable find_table(const ContextSettings& settings, const verbs::Port& port);

/// How the device of this machine was found to place writes; nothing, if no file says it of this
/// very device.  It is the process's own file that counts, whatever other ranks have: theirs may
/// have other devices.
verbs::FoundPlacement found_placement(const FoundTable& found);

/// Whether the driver of a port promises that writes are placed in order, and nothing else was
/// found.  What was found alone is no promise: ranks that have other files would do otherwise, so
/// somebody has to ask for it on all of them.
bool promises_order(const verbs::Port& port) noexcept;
/// How long a chunk may be that a word follows: of longer ones no stress has looked at, so that
/// only a driver's promise allows them.  Alike on all ranks whose devices have one kind of driver.
std::uint64_t chunk_bytes_before_words_max(const verbs::Port& port) noexcept;

/// Where files are looked for if none is named, the first one first.
std::vector<std::string> tuning_paths();

/// "12 findings, 2 rules, machine roce25".
std::string contents_of(const tune::Tuning& tuning);

}  // namespace tutti::runtime
