// Nothing.  Linked against in the real library's stead, under that library's path as its name, so
// that the shim depends on the path: by the name it would depend on itself.
