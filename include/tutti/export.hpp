// Marks what the shared library exports; all else is compiled with hidden visibility.  Only tutti's
// own sources see the mark, so a plug-in that is compiled with these headers does not offer their
// inline functions to others.  A plug-in that links the archive leaves out its symbols, too
// (tutti.pc and the CMake target say so to the linker), and keeps its own libibverbs, UCX and MPI
// untouched.  Templates of these headers are compiled in the user's files, with the visibility that
// is set there.
#pragma once

#ifdef TUTTI_BUILDING
#define TUTTI_EXPORT __attribute__((visibility("default")))
#else
#define TUTTI_EXPORT
#endif
/// A class inside one that is exported would be, too.
#define TUTTI_HIDDEN __attribute__((visibility("hidden")))
