// The machine on which figures are taken: processor, CPUs that this process may use, memory limits;
// and the binding of ranks to distinct cores.
#pragma once

#include <string>
#include <tutti/detail/cpu_set.hpp>
#include <vector>

namespace tutti::bench {

using detail::allowed_cpus;
using detail::CpuSet;
using detail::first_line;
using detail::parse_cpu_list;
using detail::text_of;

std::string cpu_model();

/// The CPUs of `set`, one of each core before the second of any.
std::vector<unsigned> by_core(const CpuSet& set);

/// Binds the calling thread.  Returns false if the system refuses.
bool bind_to(unsigned cpu);

/// "Release, GCC 12.2.0" of this build.
std::string build_text();

}  // namespace tutti::bench
