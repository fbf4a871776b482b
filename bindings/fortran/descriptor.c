/* What Fortran knows of an array of any type and rank, which it tells C alone. */
#include <ISO_Fortran_binding.h>
#include <stdint.h>
#include <tutti/tutti.h>

/* As type array_known in tutti_arrays.f90. */
typedef struct {
  void* data;
  int64_t element_count; /* -1: of assumed size, so that nobody knows it */
  int64_t element_bytes;
  int32_t type;
  int32_t is_contiguous;
} array_known;

void tutti_fortran_describe(const CFI_cdesc_t* array, array_known* known);

void tutti_fortran_describe(const CFI_cdesc_t* array, array_known* known) {
  known->data = array->base_addr;
  known->element_count = 1;
  for (CFI_rank_t i = 0; i < array->rank; ++i) {
    const CFI_index_t extent = array->dim[i].extent;
    known->element_count =
        extent < 0 || known->element_count < 0 ? -1 : known->element_count * extent;
  }
  known->element_bytes = (int64_t)array->elem_len;
  known->is_contiguous = array->rank == 0 || known->element_count < 2 || CFI_is_contiguous(array);
  if (array->type == CFI_type_int32_t)
    known->type = TUTTI_INT32;
  else if (array->type == CFI_type_int64_t)
    known->type = TUTTI_INT64;
  else if (array->type == CFI_type_float)
    known->type = TUTTI_FLOAT;
  else if (array->type == CFI_type_double)
    known->type = TUTTI_DOUBLE;
  else
    known->type = TUTTI_OTHER;
}
