// What a shared library would export.  tutti is a static library so far, and exports nothing: it is
// compiled with hidden visibility, so that a plug-in that links it neither offers these symbols to
// others nor takes those of another copy, and keeps its own libibverbs, UCX and MPI untouched.
// Templates of these headers are compiled by whoever uses them, with the visibility asked for
// there.
#pragma once

#define TUTTI_EXPORT
