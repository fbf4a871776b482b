// Visibility of the installed symbols.  Everything else in the library is hidden, so that
// whoever embeds it keeps their own libibverbs, UCX and MPI untouched.
#pragma once

#define TUTTI_EXPORT __attribute__((visibility("default")))
