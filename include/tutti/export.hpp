// Marks what a shared library would export.  tutti is a static library so far, and exports nothing:
// it is compiled with hidden visibility.  So a plug-in that links it neither offers these symbols
// to others nor takes those of another copy, and keeps its own libibverbs, UCX and MPI untouched.
// Templates of these headers are compiled in the user's files, with the visibility that is set
// there.
#pragma once

#define TUTTI_EXPORT
