// What a run of tutti-tune says and leaves behind when a user ends it (SIGINT, SIGTERM): that what
// was found is kept, and how it goes on.
#pragma once

#include <cstdint>
#include <string>

namespace tutti::bench {

/// How far a run is; alike in the program and in the ranks that it forks.
enum class RunStage : std::uint32_t {
  before,   // nothing was written
  opened,   // the journal is there, of this run, and has nothing in it
  begun,    // the journal has what was found
  written,  // the tuning file is
};

/// From now on both signals end this process and those that it forks, by a status of 128 and the
/// number of the signal, after one line on standard error; a journal that is merely opened is
/// removed.  A signal that is ignored stays so.  Called once, before ranks are forked.
/// `says`: false on the ranks of a job that leave it to another one to speak.
void end_with_words(const std::string& file, bool says);
/// In whichever process knows.
void note_stage(RunStage stage) noexcept;

}  // namespace tutti::bench
