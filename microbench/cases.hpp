// The rows of a run, set up: which collectives and sizes, their buffers, operations and probes, and
// MPI's counterparts.
#pragma once

#include <deque>
#include <memory>
#include <tutti/communicator.hpp>
#include <tutti/detail/descriptor.hpp>

#include "microbench/mpi_side.hpp"
#include "microbench/options.hpp"
#include "microbench/overlap.hpp"
#include "microbench/placement.hpp"
#include "microbench/probes.hpp"
#include "microbench/tutti_side.hpp"

namespace tutti::bench {

/// How this rank came to be.
struct Launch {
  const char* bootstrap = "";  // "local", "tcp" or "mpi"
  Exchange& exchange;
  MpiSide* mpi = nullptr;  // under MPI only
};

/// One row: a probe, or one size of a collective with MPI's counterpart beside it.
struct Case {
  Collective collective;
  std::size_t bytes = 0;
  const bench::Way* way = nullptr;        // of several
  std::shared_ptr<Buffers> buffers = {};  // shared by the ways of one size, unless in segments
  std::unique_ptr<Subject> subject = {};
  TuttiSubject* tutti = nullptr;  // the subject, unless it is a probe
  std::unique_ptr<Subject> mpi = {};
  std::unique_ptr<Overlap> overlap = {};  // if asked for, and all ranks wait for each other
};

class Cases {
 public:
  /// Makes all rows.  Collective.  Throws Error, alike on all ranks.  All arguments are borrowed.
  Cases(const Options& options, const Launch& launch, const Placement& placement,
        const Timer& timer);

  std::deque<Case>& all() noexcept { return cases_; }
  const std::deque<Case>& all() const noexcept { return cases_; }
  const Context& context() const noexcept { return *ways_.front().context; }
  const Communicator& communicator() const noexcept { return *ways_.front().communicator; }

 private:
  /// Everything of tutti that belongs to one way.
  struct Way {
    std::unique_ptr<Context> context = {};
    std::unique_ptr<Communicator> communicator = {};
    std::unique_ptr<Operation> meeting = {};  // synchronises the ranks before blocks of tutti
    const bench::Way* given = nullptr;        // of several
    bool in_node_memory = false;
    bool has_barriers = false;  // rows of its own, as they differ between ways
  };

  bool is_possible(Collective collective) const;
  void add(Collective collective);
  void add_probe(Collective collective, std::unique_ptr<Subject> probe);
  void add_tutti(Way& way, Case&& made, Operation&& operation);
  std::shared_ptr<Buffers> make_buffers(const Way& way, Collective collective, std::size_t bytes);
  void add_with_payload(Way& way, Collective collective, std::size_t bytes);
  void rotate_root(Way& way, Case& made);
  ProbeMemory& probe_memory();

  const Options& options_;
  const Launch& launch_;
  const Placement& placement_;
  const Timer& timer_;
  detail::Mapping probe_mapping_;
  std::deque<Way> ways_;
  std::deque<Case> cases_;
};

}  // namespace tutti::bench
