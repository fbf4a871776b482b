// How the ranks of a test that a launcher has started meet: by MPI or by PMIx.
#pragma once

#include <memory>
#include <tutti/exchange.hpp>

namespace tutti::test {

/// At the begin of main().
void begin_meeting(int& argument_count, char**& arguments);
std::unique_ptr<Exchange> meet();
/// At the end of main(), unless ranks have died: MPI would wait for them.
void end_meeting();

}  // namespace tutti::test
