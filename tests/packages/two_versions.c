/* Two versions of the library in one process.  This file is compiled into a program that is linked
 * with one, and, with PLUGIN defined, into a plug-in that is linked with the other and has calls of
 * its own in flight between those of the program. two_versions PLUG_IN */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <tutti/tutti.h>
#include <unistd.h>

struct part {
  const char* (*file)(void); /* where its library has come from */
  int (*open)(int peer, int rank);
  int (*start)(int64_t mine);
  int (*wait)(int64_t expected);
  void (*close)(void);
};

static int socket_of_peer;
static tutti_exchange* exchange;
static tutti_context* context;
static tutti_communicator* communicator;
static tutti_operation* operation;
static int64_t mine, whole;

static tutti_status allgather(void* rank, const void* own, void* all, size_t bytes,
                              int64_t timeout_ns) {
  (void)timeout_ns;
  char* const to = all;
  const size_t self = *(const int*)rank == 0 ? 0 : bytes, peer = bytes - self;
  memcpy(to + self, own, bytes);
  for (size_t at = 0; at < bytes;) { /* in pieces that fit a socket */
    const size_t piece = bytes - at < 4096 ? bytes - at : 4096;
    if (send(socket_of_peer, (const char*)own + at, piece, MSG_NOSIGNAL) != (ssize_t)piece ||
        recv(socket_of_peer, to + peer + at, piece, MSG_WAITALL) != (ssize_t)piece)
      return TUTTI_PEER_FAILED;
    at += piece;
  }
  return TUTTI_OK;
}

static tutti_status barrier(void* rank, int64_t timeout_ns) {
  char byte = 0, both[2];
  return allgather(rank, &byte, both, 1, timeout_ns);
}

static const char* file_of_library(void) {
  Dl_info info;
  return dladdr((void*)(size_t)&tutti_context_create, &info) != 0 ? info.dli_fname : "";
}

static int open_part(int peer, int rank) {
  static int own_rank;
  own_rank = rank;
  socket_of_peer = peer;
  tutti_failure failure = {0};
  const tutti_exchange_functions functions = {.struct_size = sizeof functions,
                                              .rank = rank,
                                              .rank_count = 2,
                                              .context = &own_rank,
                                              .allgather = allgather,
                                              .barrier = barrier};
  const tutti_context_options options = {.struct_size = sizeof options, .arena_bytes = 4 << 20};
  const tutti_allreduce_arguments arguments = {
      .struct_size = sizeof arguments,
      .source = &mine,
      .target = &whole,
      .element_count = 1,
      .reduction = {.which = TUTTI_SUM, .type = TUTTI_INT64}};
  if (tutti_user_exchange(&functions, &exchange, &failure) != TUTTI_OK ||
      tutti_context_create(&options, &context, &failure) != TUTTI_OK ||
      tutti_communicator_create(context, exchange, &communicator, &failure) != TUTTI_OK ||
      tutti_allreduce_init(communicator, &arguments, &operation, &failure) != TUTTI_OK) {
    fprintf(stderr, "%s: %s\n", file_of_library(), failure.text);
    return 1;
  }
  return 0;
}

static int start_part(int64_t value) {
  mine = value;
  return tutti_start(operation) != TUTTI_OK;
}

static int wait_part(int64_t expected) {
  return tutti_wait(operation, INT64_C(20000000000)) != TUTTI_OK || whole != expected;
}

static void close_part(void) {
  tutti_operation_free(operation);
  tutti_communicator_free(communicator);
  tutti_context_free(context);
  tutti_exchange_free(exchange);
}

static const struct part own_part = {file_of_library, open_part, start_part, wait_part, close_part};

#ifdef PLUGIN
__attribute__((visibility("default"))) const struct part* plugin_part(void);
const struct part* plugin_part(void) {
  return &own_part;
}
#else

static int run(const struct part* plugin, const int* sockets, int rank) {
  if (own_part.open(sockets[0], rank) != 0 || plugin->open(sockets[1], rank) != 0) return 2;
  for (int call = 0; call < 1000; ++call) {
    if (own_part.start(call + rank) != 0 || plugin->start(7 * call - rank) != 0) return 3;
    if (call % 2 == 0 && plugin->wait(14 * call - 1) != 0) return 4;
    if (own_part.wait(2 * call + 1) != 0) return 5;
    if (call % 2 == 1 && plugin->wait(14 * call - 1) != 0) return 6;
  }
  /* One may end while the other goes on. */
  plugin->close();
  if (own_part.start(1) != 0 || own_part.wait(2) != 0) return 7;
  own_part.close();
  return 0;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  void* const library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  const struct part* (*find)(void);
  *(void**)&find = dlsym(library, "plugin_part");
  if (find == NULL) return 1;
  const struct part* const plugin = find();
  if (strcmp(plugin->file(), own_part.file()) == 0) {
    fprintf(stderr, "the program and the plug-in both call %s\n", own_part.file());
    return 1;
  }
  int of_program[2], of_plugin[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, of_program) != 0 ||
      socketpair(AF_UNIX, SOCK_STREAM, 0, of_plugin) != 0)
    return 1;
  const pid_t child = fork();
  if (child < 0) return 1;
  const int rank = child == 0;
  const int sockets[2] = {of_program[rank], of_plugin[rank]};
  const int wrong = run(plugin, sockets, rank);
  if (wrong != 0) fprintf(stderr, "rank %d: wrong: %d\n", rank, wrong);
  if (child == 0) _exit(wrong);
  int status = 0;
  shutdown(sockets[0], SHUT_RDWR);
  shutdown(sockets[1], SHUT_RDWR);
  return waitpid(child, &status, 0) != child || status != 0 || wrong != 0;
}
#endif
