// An empty library.  The shim is linked against it in the real library's stead.  Its name is the
// real library's path, so the shim depends on that path; by the library's name it would depend on
// itself.
