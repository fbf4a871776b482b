/* Promise: a program that opens libibverbs by name, as some communication libraries do, finds the
 * device too, and the functions that are not the device's. */
#define _GNU_SOURCE /* dlvsym */
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#undef ibv_get_device_list

static void* find(void* library, const char* name) {
  void* const function = dlvsym(library, name, "IBVERBS_1.1");
  if (!function) printf("%s: %s\n", name, dlerror());
  return function;
}

#define FIND(name)                               \
  __typeof__(name)* name##_found;                \
  *(void**)&name##_found = find(library, #name); \
  if (!name##_found || dlsym(library, #name) != *(void**)&name##_found) return 1

int main(void) {
  void* const library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    printf("%s\n", dlerror());
    return 1;
  }
  FIND(ibv_get_device_list);
  FIND(ibv_free_device_list);
  FIND(ibv_get_device_name);
  FIND(ibv_open_device);
  FIND(ibv_query_device);
  FIND(ibv_close_device);
  FIND(ibv_wc_status_str);
  struct ibv_context* (*import_device)(int); /* younger: of another version */
  *(void**)&import_device = dlsym(library, "ibv_import_device");
  int count = 0;
  struct ibv_device** const list = ibv_get_device_list_found(&count);
  if (count < 1 || strcmp(ibv_get_device_name_found(list[count - 1]), "soft0") != 0) {
    printf("soft0 is not the last of %d devices\n", count);
    return 1;
  }
  struct ibv_context* const context = ibv_open_device_found(list[count - 1]);
  ibv_free_device_list_found(list);
  struct ibv_device_attr attributes;
  if (!context || ibv_query_device_found(context, &attributes) != 0 ||
      attributes.phys_port_cnt == 0) {
    printf("soft0 cannot be used\n");
    return 1;
  }
  const int command = dup(context->cmd_fd);
  if (command < 0 || !import_device || import_device(command) || errno != EOPNOTSUPP) {
    printf("soft0 does not refuse to be imported\n");
    return 1;
  }
  close(command);
  printf("soft0 opened: %s\n", ibv_wc_status_str_found(IBV_WC_SUCCESS));
  return ibv_close_device_found(context);
}
