/* tutti: collectives with the latency of the wire.  The whole C interface, C11.  It mirrors the C++
 * interface (tutti.hpp): what is said there of a function holds for the function of that name here.
 *
 * Objects are opaque.  The caller frees each object that it has made, once, in the reverse order:
 * operations before their communicator, communicators that were split off before the whole,
 * communicators before their exchange, communicators and segments before the context (checked: the
 * program is aborted).  Freeing NULL does nothing.
 *
 * One thread at a time for a context and everything made from it.
 *
 * Structs of arguments begin with their size, so that they can grow, and zero is every default:
 *
 *     tutti_allreduce_arguments arguments = {.struct_size = sizeof arguments, .source = &mine};
 *
 * Fields called reserved stay zero.  Counts and bytes are signed: a negative one is refused by
 * name.  Lists and texts are copied; buffers, and the context of an operator, are not.
 *
 * Making an object may block.  It is collective over the ranks of the communicator or the exchange:
 * a rank whose arguments are refused still takes part, all ranks get the same failure, and the
 * object is NULL.  After it the communicator is as good as before, but not after a set-up that
 * timed out.  If ranks call different functions on communicators of one exchange, all of them get
 * TUTTI_ERROR_MISMATCH, which names the calls and the ranks.  A rank that passes NULL as
 * communicator, context or exchange cannot take part: the others wait for the set-up timeout.
 *
 * Starting, testing and waiting never allocate and take no lock.  A negative timeout has passed
 * already.  No exception leaves the library; an exception that leaves a function of the user's ends
 * the program. */
#ifndef TUTTI_TUTTI_H
#define TUTTI_TUTTI_H

#include <stddef.h>
#include <stdint.h>

#include "tutti/export.hpp"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Status and failure ---------------------------------------------------------------------- */

/* 0: done as asked.  > 0: unfinished, call again.  < 0: failed for good. */
typedef int32_t tutti_status;
enum {
  TUTTI_OK = 0,
  TUTTI_IN_PROGRESS = 1,       /* nothing is wrong; the operation is still in flight */
  TUTTI_TIMED_OUT = 2,         /* the deadline passed; STILL in flight, waiting may resume */
  TUTTI_PEER_FAILED = -1,      /* a peer is gone; ask, shrink or free the communicator */
  TUTTI_TRANSPORT_FAILED = -2, /* a work completion carried an error; same consequence */
  TUTTI_ABORTED = -3,          /* a rank gave up, or this is a forked child */
  TUTTI_INVALID_ARGUMENT = -4, /* set-up only: the caller's value cannot work anywhere */
  TUTTI_SETUP_FAILED = -5      /* set-up only: tutti_failure.error says how */
};

/* Why a set-up failed. */
typedef int32_t tutti_error;
enum {
  TUTTI_ERROR_NONE = 0,
  TUTTI_ERROR_INVALID_ARGUMENT = 1,
  TUTTI_ERROR_MISMATCH = 2,       /* ranks disagree about something that must be equal */
  TUTTI_ERROR_UNSUPPORTED = 3,    /* valid, but this build or device does not offer it */
  TUTTI_ERROR_LIMIT_EXCEEDED = 4, /* a limit of the device or of the arena, or no memory */
  TUTTI_ERROR_NO_DEVICE = 5,      /* no usable device, port or GID */
  TUTTI_ERROR_TIMED_OUT = 6,      /* a set-up step passed its deadline */
  TUTTI_ERROR_PEER_FAILED = 7,    /* a peer died or refused during set-up */
  TUTTI_ERROR_SYSTEM = 8          /* a system or verbs call was refused */
};

/* What went wrong.  Functions that make an object write it only when they fail, and name ranks in
 * the text alone.  They take NULL from a caller that does not want it. */
typedef struct {
  tutti_status status;
  tutti_error error;    /* of a set-up, else TUTTI_ERROR_NONE */
  int32_t peer;         /* the rank that failed, -1 where that is unknown */
  int32_t system_errno; /* of the refused call, 0 if there was none */
  int64_t operation;    /* which one met it, in order of creation */
  int64_t sequence;     /* which start of it, from 1 */
  int32_t round;        /* of its plan, from 0 */
  int32_t completion;   /* ibv_wc_status of the completion, 0 if there was none */
  int64_t reserved[4];
  char text[1024]; /* names the value, what was expected and what to do; ends in "..." if cut */
} tutti_failure;

/* The name of a status: "ok", "timed_out", ...; "invalid status" for a number that is none. */
TUTTI_EXPORT const char* tutti_status_name(tutti_status status);

#define TUTTI_WAIT_FOREVER INT64_MAX /* for every timeout_ns */
#define TUTTI_NEVER INT64_MAX        /* for sizes from which on something is done */

/* Values of settings that can be left at their default, or are yes or no. */
enum { TUTTI_DEFAULT = 0, TUTTI_YES = 1, TUTTI_NO = 2 };

/* ---- How ranks find each other (bootstrap.hpp, exchange.hpp) ----------------------------------
 */

/* Out-of-band exchange between all ranks, and their side channel.  tutti_mpi_exchange() in
 * tutti/mpi_exchange.h makes one from an MPI communicator. */
typedef struct tutti_exchange tutti_exchange;

typedef struct {
  size_t struct_size;
  int32_t rank;
  int32_t rank_count;
  const char* rendezvous; /* host:port on which rank 0 listens; [address]:port for IPv6 */
  const char* secret;     /* shared by the ranks of one job, 1 .. 256 bytes */
  int64_t timeout_ns;     /* of meeting, and of freeing it on rank 0; 0: 30 s */
} tutti_tcp_options;

/* Meets the other ranks over TCP.  options NULL: from TUTTI_RANK, TUTTI_SIZE, TUTTI_RENDEZVOUS,
 * TUTTI_SECRET (or TUTTI_SECRET_FILE or TUTTI_SECRET_FD) and TUTTI_BOOTSTRAP_TIMEOUT. */
TUTTI_EXPORT tutti_status tutti_tcp_exchange(const tutti_tcp_options* options,
                                             tutti_exchange** exchange, tutti_failure* failure);

/* An exchange by functions of the user's, for example over PMI.  They return TUTTI_OK, or
 * TUTTI_TIMED_OUT, or any other value for TUTTI_ERROR_PEER_FAILED; after a failure they are not
 * called again.  There is no side channel: the death of a rank of this host is noticed, that of
 * another one only by a timeout. */
typedef struct {
  size_t struct_size;
  int32_t rank;
  int32_t rank_count;
  void* context; /* the first parameter of both */
  /* `all` receives the `bytes` of every rank in rank order.  `bytes` is equal on all ranks. */
  tutti_status (*allgather)(void* context, const void* mine, void* all, size_t bytes,
                            int64_t timeout_ns);
  /* No rank returns before every rank has entered.  tutti_synchronize() uses allgather instead. */
  tutti_status (*barrier)(void* context, int64_t timeout_ns);
} tutti_exchange_functions;

TUTTI_EXPORT tutti_status tutti_user_exchange(const tutti_exchange_functions* functions,
                                              tutti_exchange** exchange, tutti_failure* failure);

TUTTI_EXPORT tutti_status tutti_exchange_free(tutti_exchange* exchange);

/* How one rank of tutti_run_local() ended. */
typedef struct {
  int32_t exit_status; /* what the body returned */
  int32_t signal;      /* the signal that killed it, 0 if none did */
} tutti_local_result;

/* Forks ranks of this machine, runs `body` in each, and waits for all of them.  The body uses the
 * exchange, and does not free it.  No object of the library may exist yet.  `results` has
 * rank_count entries, or is NULL; TUTTI_OK says that they are known, not that the ranks succeeded.
 */
TUTTI_EXPORT tutti_status tutti_run_local(int32_t rank_count,
                                          int (*body)(tutti_exchange* exchange, void* context),
                                          void* context, tutti_local_result* results,
                                          tutti_failure* failure);

/* ---- Context and communicator (communicator.hpp) ----------------------------------------------
 */

/* One process's device, arena, completion queue and queue pairs. */
typedef struct tutti_context tutti_context;

enum { TUTTI_CHECK_OFF = 1, TUTTI_CHECK_LOCAL = 2, TUTTI_CHECK_COLLECTIVE = 3 };
enum { TUTTI_CONNECT_EXCHANGE = 1, TUTTI_CONNECT_CM = 2 };
enum { TUTTI_NOTIFY_IMMEDIATE = 1, TUTTI_NOTIFY_FLAG = 2 };
enum { TUTTI_WAIT_AUTOMATIC = 1, TUTTI_WAIT_SPIN = 2, TUTTI_WAIT_YIELD = 3, TUTTI_WAIT_BLOCK = 4 };
enum { TUTTI_SHARED_AUTOMATIC = 1, TUTTI_SHARED_WORDS = 2, TUTTI_SHARED_REPUBLISHED = 3 };
enum {
  TUTTI_TUNING_MODE_FILE = 1,
  TUTTI_TUNING_MODE_MODEL = 2,
  TUTTI_TUNING_MODE_FIRST_CALL = 3,
  TUTTI_TUNING_MODE_OFF = 4
};
enum { TUTTI_PLACEMENT_BLOCK = 1, TUTTI_PLACEMENT_CYCLIC = 2, TUTTI_PLACEMENT_RANDOM = 3 };

/* A list of `count` values; without values it is not given. */
typedef struct {
  const int32_t* values;
  int32_t count;
  int32_t reserved;
} tutti_counts;

/* ContextOptions.  Fields that are 0 or NULL come from the TUTTI_* environment, else they have
 * their default. */
typedef struct {
  size_t struct_size;
  const char* device;
  int64_t arena_bytes;
  int64_t chunk_bytes;
  int64_t single_copy_bytes; /* TUTTI_NEVER; 1: always; 0: as measured */
  int64_t setup_timeout_ns;
  int64_t domains_above; /* TUTTI_NEVER; 1: always */
  int32_t check;
  int32_t register_buffers; /* TUTTI_YES, TUTTI_NO */
  int32_t connect;
  int32_t notify;
  int32_t wait;
  int32_t shared_notifications;
  int32_t placement;
  int32_t reserved;
  tutti_counts per_round;
  tutti_counts ranks_per_node;
  tutti_counts ranks_per_domain;
  int64_t connections_max;
  const char* tuning_file;    /* path; refused on all ranks where one cannot take it */
  int32_t tuning;             /* TUTTI_TUNING_MODE_... */
  int32_t tuning_keeps_bits;  /* TUTTI_YES, TUTTI_NO */
  int32_t tuning_appends;     /* TUTTI_YES, TUTTI_NO: append what first calls find, at rank 0 */
  int32_t shrinkable;         /* TUTTI_YES, TUTTI_NO: alike on all ranks */
  int64_t detection_bound_ns; /* within which a dead process of this host is found; 0: 1 s */
} tutti_context_options;

/* options NULL: all defaults. */
TUTTI_EXPORT tutti_status tutti_context_create(const tutti_context_options* options,
                                               tutti_context** context, tutti_failure* failure);
TUTTI_EXPORT tutti_status tutti_context_free(tutti_context* context);

/* Texts are written as by snprintf: cut to `bytes`, and the length of the whole is returned. */
TUTTI_EXPORT size_t tutti_device_name(const tutti_context* context, char* text, size_t bytes);
TUTTI_EXPORT size_t tutti_device_choice(const tutti_context* context, char* text, size_t bytes);

/* The ranks of an exchange over a context. */
typedef struct tutti_communicator tutti_communicator;

TUTTI_EXPORT tutti_status tutti_communicator_create(tutti_context* context,
                                                    tutti_exchange* exchange,
                                                    tutti_communicator** communicator,
                                                    tutti_failure* failure);
TUTTI_EXPORT tutti_status tutti_communicator_free(tutti_communicator* communicator);

#define TUTTI_NO_COLOR (-1)

/* As MPI_Comm_split.  *part becomes NULL on ranks whose color is TUTTI_NO_COLOR. */
TUTTI_EXPORT tutti_status tutti_communicator_split(tutti_communicator* communicator, int32_t color,
                                                   int64_t key, tutti_communicator** part,
                                                   tutti_failure* failure);

/* Makes a communicator of the ranks that are still there, each of which calls it; needs the option
 * shrinkable.  A rank is gone only if it has died or freed all communicators of this line: this
 * one, those it was shrunk from and those it was shrunk to.  The new one may outlive `communicator`
 * and its exchange. */
TUTTI_EXPORT tutti_status tutti_communicator_shrink(tutti_communicator* communicator,
                                                    int64_t timeout_ns,
                                                    tutti_communicator** survivors,
                                                    tutti_failure* failure);

TUTTI_EXPORT int32_t tutti_rank(const tutti_communicator* communicator);
TUTTI_EXPORT int32_t tutti_rank_count(const tutti_communicator* communicator);
TUTTI_EXPORT int32_t tutti_node(const tutti_communicator* communicator);
TUTTI_EXPORT int32_t tutti_node_count(const tutti_communicator* communicator);
TUTTI_EXPORT size_t tutti_node_remark(const tutti_communicator* communicator, char* text,
                                      size_t bytes);

/* Gives up: every operation in flight returns TUTTI_ABORTED, also on the other ranks. */
TUTTI_EXPORT tutti_status tutti_abort(tutti_communicator* communicator);

/* Out of band: no rank returns before all have entered. */
TUTTI_EXPORT tutti_status tutti_synchronize(tutti_communicator* communicator,
                                            tutti_failure* failure);

/* Collective, over all ranks: gives up all calls in flight of this communicator's operations, after
 * which these can be started again as if they had just been made.  For ranks whose wait has timed
 * out because one of them was late; that one calls it, too.  The targets of calls that were in
 * flight have undefined content.  If ranks make different calls instead (TUTTI_ERROR_MISMATCH), all
 * that was in flight still is.  After TUTTI_TIMED_OUT and TUTTI_PEER_FAILED the communicator has
 * failed. */
TUTTI_EXPORT tutti_status tutti_cancel(tutti_communicator* communicator, tutti_failure* failure);

/* Makes one step of progress for all operations of the context.  Returns TUTTI_OK, or the
 * communicator's failure. */
TUTTI_EXPORT tutti_status tutti_progress(tutti_communicator* communicator);

/* What the operations of a communicator are doing, and what the missing ranks of this node do at
 * this moment: lines for people or, unless as_json is 0, a JSON object.  Asks no other rank.  Not
 * for the data path. */
TUTTI_EXPORT size_t tutti_report(const tutti_communicator* communicator, int32_t as_json,
                                 char* text, size_t bytes);
/* The first failure of the communicator, whose status is also returned; TUTTI_OK while there is
 * none. */
TUTTI_EXPORT tutti_status tutti_get_failure(const tutti_communicator* communicator,
                                            tutti_failure* failure);

/* ---- Segments (segment.hpp) --------------------------------------------------------------------
 */

/* Zeroed memory that peers may write.  With TUTTI_SCOPE_NODE it is one memory for all ranks of a
 * node, and may be the one target of all of them in an allreduce, allgather(v) or broadcast:
 * segment.hpp, "Shared target", says what has to hold, and how long a result stays. */
typedef struct tutti_segment tutti_segment;

enum { TUTTI_SCOPE_RANK = 0, TUTTI_SCOPE_NODE = 1 };

TUTTI_EXPORT tutti_status tutti_segment_allocate(tutti_communicator* communicator, int64_t bytes,
                                                 int32_t scope, tutti_segment** segment,
                                                 tutti_failure* failure);
TUTTI_EXPORT void* tutti_segment_data(const tutti_segment* segment);
TUTTI_EXPORT int64_t tutti_segment_size(const tutti_segment* segment);
TUTTI_EXPORT tutti_status tutti_segment_free(tutti_segment* segment);

/* ---- Reductions (reduction.hpp) ----------------------------------------------------------------
 */

typedef int32_t tutti_type;
enum {
  TUTTI_OTHER = 0, /* for users' operators alone */
  TUTTI_INT32 = 1,
  TUTTI_UINT32 = 2,
  TUTTI_INT64 = 3,
  TUTTI_UINT64 = 4,
  TUTTI_FLOAT = 5,
  TUTTI_DOUBLE = 6,
  TUTTI_FLOAT16 = 7, /* IEEE 754 binary16 */
  TUTTI_BFLOAT16 = 8
};

typedef int32_t tutti_operator;
enum {
  TUTTI_USER = 0, /* tutti_reduction.combine */
  TUTTI_SUM = 1,
  TUTTI_PRODUCT = 2,
  TUTTI_MIN = 3,
  TUTTI_MAX = 4,
  TUTTI_BIT_AND = 5, /* these are for integers */
  TUTTI_BIT_OR = 6,
  TUTTI_BIT_XOR = 7,
  TUTTI_LOGICAL_AND = 8,
  TUTTI_LOGICAL_OR = 9
};

/* partial[i] = incoming[i] o partial[i]; `incoming` holds the contributions of the lower ranks.
 * Must not block or call the library, but for tutti_fail(). */
typedef void (*tutti_combine_function)(const void* incoming, void* partial, size_t element_count,
                                       void* context);

/* Called by a user's operator, with its context, that cannot combine what it was given: the
 * collective ends with TUTTI_ABORTED (fail() in reduction.hpp).  The text is cut to 95 bytes. */
TUTTI_EXPORT void tutti_fail(void* context, const char* text);

/* {.which = TUTTI_SUM, .type = TUTTI_DOUBLE}; the rest is for TUTTI_USER. */
typedef struct {
  tutti_operator which;
  tutti_type type;
  tutti_combine_function combine;
  tutti_combine_function inverse; /* takes `incoming` out of `partial`; NULL if there is none */
  void* context;                  /* borrowed; must outlive every operation that uses it */
  int64_t element_bytes;
  int32_t commutative; /* 1 or 0 */
  int32_t idempotent;  /* 1 or 0: contributions may enter more than once */
  int32_t exact; /* 1 or 0: it never rounds, so that the bits are the same in any association */
  int32_t reserved;
} tutti_reduction;

enum { TUTTI_IDENTICAL = 0, TUTTI_REPRODUCIBLE = 1, TUTTI_RELAXED = 2 };

/* ---- Sums that do not depend on order and number of ranks (exact_sum.hpp) ----------------------
 */

/* Begins as zero: tutti_exact_sum sum = TUTTI_EXACT_SUM_ZERO.  Sums of the same values have the
 * same bytes, in whatever order and parts they were added.  Pointers to sums must not be NULL. */
typedef struct {
  uint64_t words[5];
} tutti_exact_sum;
#define TUTTI_EXACT_SUM_ZERO \
  {                          \
    { 0, 0, 0, 0, 0 }        \
  }

TUTTI_EXPORT void tutti_exact_sum_add(tutti_exact_sum* sum, const double* values, size_t count);
TUTTI_EXPORT void tutti_exact_sum_add_floats(tutti_exact_sum* sum, const float* values,
                                             size_t count);
/* Adds left[i] * right[i], each rounded to a double. */
TUTTI_EXPORT void tutti_exact_sum_add_products(tutti_exact_sum* sum, const double* left,
                                               const double* right, size_t count);
TUTTI_EXPORT void tutti_exact_sum_merge(tutti_exact_sum* sum, const tutti_exact_sum* other);
/* Rounded once, to nearest. */
TUTTI_EXPORT double tutti_exact_sum_value(const tutti_exact_sum* sum);
TUTTI_EXPORT float tutti_exact_sum_value_as_float(const tutti_exact_sum* sum);
/* The operator that adds elements of type tutti_exact_sum.  It is exact: bits do not depend on the
 * agreement that is asked for. */
TUTTI_EXPORT tutti_reduction tutti_exact_addition(void);

/* ---- Schedules (algorithm.hpp) -----------------------------------------------------------------
 */

enum {
  TUTTI_ALGORITHM_AUTOMATIC = 0,
  TUTTI_ALGORITHM_DISSEMINATION = 1,
  TUTTI_ALGORITHM_TWO_PARTIAL = 2,
  TUTTI_ALGORITHM_RECURSIVE_MULTIPLYING = 3,
  TUTTI_ALGORITHM_NWAY = 4,
  TUTTI_ALGORITHM_NWAY_INVERSE = 5,
  TUTTI_ALGORITHM_DECOMPOSITION = 6,
  TUTTI_ALGORITHM_DECOMPOSITION_DIGITS = 7,
  TUTTI_ALGORITHM_CANONICAL_DISSEMINATION = 8,
  TUTTI_ALGORITHM_CHUNKED_FOLD = 9,
  TUTTI_ALGORITHM_RING = 10,
  TUTTI_ALGORITHM_SHARED_RING = 11,
  TUTTI_ALGORITHM_CIRCULANT = 12,
  TUTTI_ALGORITHM_CANONICAL_HALVING = 13
};
enum {
  TUTTI_ACROSS_AUTOMATIC = 0,
  TUTTI_ACROSS_FLAT = 1,
  TUTTI_ACROSS_LEADER = 2,
  TUTTI_ACROSS_LANES = 3
};
enum {
  TUTTI_TREE_AUTOMATIC = 0,
  TUTTI_TREE_KNOMIAL = 1,
  TUTTI_TREE_BINOMIAL = 2,
  TUTTI_TREE_FIBONACCI = 3
};

/* ---- Operations (operation.hpp) ----------------------------------------------------------------
 */

/* A persistent collective: made once, started any number of times. */
typedef struct tutti_operation tutti_operation;

/* Starts a call, and never waits.  The buffers are the library's until testing or waiting returns
 * TUTTI_OK.  Aborts the program if the operation is in flight. */
TUTTI_EXPORT tutti_status tutti_start(tutti_operation* operation);
/* Starts a call on other buffers of the same sizes, which later calls of tutti_start() also use.
 * The sizes are not checked.  An operation that works without copies (what tutti_algorithm() gives
 * ends in "_zero_copy") must keep its target, but for the root of a broadcast, and a source that is
 * sent from must lie in a segment or be one of the two buffers with which the operation was made; a
 * target that a node shares must stay, too.  Aborts the program otherwise. */
TUTTI_EXPORT tutti_status tutti_start_on(tutti_operation* operation, const void* source,
                                         void* target);
/* Makes one step of progress; TUTTI_IN_PROGRESS until finished.  TUTTI_OK if nothing is in flight.
 */
TUTTI_EXPORT tutti_status tutti_test(tutti_operation* operation);
/* Makes progress until finished or TUTTI_TIMED_OUT, which is no failure of the communicator:
 * tutti_describe() says what is missing.  May be called again. */
TUTTI_EXPORT tutti_status tutti_wait(tutti_operation* operation, int64_t timeout_ns);
TUTTI_EXPORT int32_t tutti_in_flight(const tutti_operation* operation); /* 1 or 0 */
/* Aborts its communicator if the operation is in flight, also after TUTTI_TIMED_OUT. */
TUTTI_EXPORT tutti_status tutti_operation_free(tutti_operation* operation);

/* Gives it a name of the program's, which descriptions, reports and failures show; at most 63
 * bytes, and NULL for none. */
TUTTI_EXPORT tutti_status tutti_set_label(tutti_operation* operation, const char* label);
/* Operation, sequence number, round and the ranks still missing.  Not for the data path. */
TUTTI_EXPORT size_t tutti_describe(const tutti_operation* operation, char* text, size_t bytes);
TUTTI_EXPORT size_t tutti_algorithm(const tutti_operation* operation, char* text, size_t bytes);
/* Which schedule runs and why, the prices of the next ones, why others are out, and which tuning
 * table is in force: a line each.  The choice is made once more; not for the data path. */
TUTTI_EXPORT size_t tutti_explanation(const tutti_operation* operation, char* text, size_t bytes);
/* Messages of each round: writes up to `room` entries, and returns the number of rounds. */
TUTTI_EXPORT size_t tutti_per_round(const tutti_operation* operation, int32_t* per_round,
                                    size_t room);
TUTTI_EXPORT int32_t tutti_notify(const tutti_operation* operation); /* TUTTI_NOTIFY_... */
/* How many elements of the payload a call brings, and of how many ranks. */
TUTTI_EXPORT int64_t tutti_covered_elements(const tutti_operation* operation);
TUTTI_EXPORT int32_t tutti_covered_ranks(const tutti_operation* operation);
/* Age in calls of the oldest contribution to the last result of an allreduce_ssp. */
TUTTI_EXPORT int64_t tutti_staleness(const tutti_operation* operation);

/* ---- Collectives (collectives.hpp) ------------------------------------------------------------
 */
/* Unless said otherwise, all fields but the buffers are the same on every rank. */

typedef struct {
  size_t struct_size;
  tutti_counts per_round; /* messages of each round; none: the context's, then a rule */
  int32_t algorithm;
  int32_t across;
} tutti_barrier_arguments;
/* arguments NULL: all defaults. */
TUTTI_EXPORT tutti_status tutti_barrier_init(tutti_communicator* communicator,
                                             const tutti_barrier_arguments* arguments,
                                             tutti_operation** operation, tutti_failure* failure);

typedef struct {
  size_t struct_size;
  const void* source; /* element_count elements; may equal target (in place) */
  void* target;       /* element_count elements; contents undefined until ok */
  int64_t element_count;
  tutti_reduction reduction;
  tutti_counts per_round;
  int32_t agreement;
  int32_t algorithm;
  int32_t across;
  int32_t reserved;
} tutti_allreduce_arguments;
TUTTI_EXPORT tutti_status tutti_allreduce_init(tutti_communicator* communicator,
                                               const tutti_allreduce_arguments* arguments,
                                               tutti_operation** operation, tutti_failure* failure);

typedef struct {
  size_t struct_size;
  const void* source;
  void* target;
  int64_t element_count;
  tutti_reduction reduction; /* commutative */
  int32_t slack;             /* calls */
  int32_t reserved;
} tutti_allreduce_ssp_arguments;
TUTTI_EXPORT tutti_status tutti_allreduce_ssp_init(tutti_communicator* communicator,
                                                   const tutti_allreduce_ssp_arguments* arguments,
                                                   tutti_operation** operation,
                                                   tutti_failure* failure);

typedef struct {
  size_t struct_size;
  void* buffer; /* `bytes`: read on the root, written on the others */
  int64_t bytes;
  int64_t element_bytes; /* whole elements arrive; divides `bytes`; 0: 1 */
  double data_fraction;  /* share of the payload that is to arrive, in (0, 1]; 0, as not given: 1 */
  int32_t root;
  int32_t tree;
} tutti_broadcast_arguments;
TUTTI_EXPORT tutti_status tutti_broadcast_init(tutti_communicator* communicator,
                                               const tutti_broadcast_arguments* arguments,
                                               tutti_operation** operation, tutti_failure* failure);

typedef struct {
  size_t struct_size;
  const void* source; /* element_count elements */
  void* target;       /* of the root; others need none.  May equal source */
  int64_t element_count;
  tutti_reduction reduction;
  double data_fraction; /* share of the elements, in (0, 1]; 0, as not given: 1 */
  double rank_fraction; /* share of the ranks that contribute, in (0, 1]; 0, as not given: 1 */
  int32_t root;
  int32_t agreement;
  int32_t tree;
  int32_t reserved;
} tutti_reduce_arguments;
TUTTI_EXPORT tutti_status tutti_reduce_init(tutti_communicator* communicator,
                                            const tutti_reduce_arguments* arguments,
                                            tutti_operation** operation, tutti_failure* failure);

typedef struct {
  size_t struct_size;
  const void* source; /* element_count elements */
  void* target;       /* element_count elements; exscan: rank 0 needs none */
  int64_t element_count;
  tutti_reduction reduction;
} tutti_scan_arguments;
TUTTI_EXPORT tutti_status tutti_scan_init(tutti_communicator* communicator,
                                          const tutti_scan_arguments* arguments,
                                          tutti_operation** operation, tutti_failure* failure);
TUTTI_EXPORT tutti_status tutti_exscan_init(tutti_communicator* communicator,
                                            const tutti_scan_arguments* arguments,
                                            tutti_operation** operation, tutti_failure* failure);

/* ---- Collectives of blocks (block_collectives.hpp) --------------------------------------------
 */
/* A buffer has one block for each rank; sizes are in bytes unless they are called element_counts.
 */

/* Where the blocks of all ranks lie in a buffer: one entry for each rank. */
typedef struct {
  const int64_t* bytes;
  const int64_t* offsets; /* in bytes; NULL: one after the other */
} tutti_block_layout;

typedef struct {
  size_t struct_size;
  const void* source; /* `bytes`; alltoall: `bytes` for each rank */
  void* target;       /* `bytes` from each rank */
  int64_t bytes;      /* of one block */
  int32_t algorithm;  /* of an allgather: automatic or TUTTI_ALGORITHM_SHARED_RING */
  int32_t reserved;
} tutti_allgather_arguments;
typedef tutti_allgather_arguments tutti_alltoall_arguments;
/* Block q of every target = the source of rank q. */
TUTTI_EXPORT tutti_status tutti_allgather_init(tutti_communicator* communicator,
                                               const tutti_allgather_arguments* arguments,
                                               tutti_operation** operation, tutti_failure* failure);
/* Block q of the target of rank p = block p of the source of rank q. */
TUTTI_EXPORT tutti_status tutti_alltoall_init(tutti_communicator* communicator,
                                              const tutti_alltoall_arguments* arguments,
                                              tutti_operation** operation, tutti_failure* failure);

typedef struct {
  size_t struct_size;
  const void* source; /* as many bytes as this rank's block has */
  void* target;
  tutti_block_layout blocks; /* of the target; offsets may differ between ranks */
  int32_t algorithm;         /* automatic or TUTTI_ALGORITHM_SHARED_RING */
  int32_t reserved;
} tutti_allgatherv_arguments;
TUTTI_EXPORT tutti_status tutti_allgatherv_init(tutti_communicator* communicator,
                                                const tutti_allgatherv_arguments* arguments,
                                                tutti_operation** operation,
                                                tutti_failure* failure);

typedef struct {
  size_t struct_size;
  const void* source;
  void* target;
  tutti_block_layout source_blocks; /* block p is for rank p */
  tutti_block_layout target_blocks; /* block q comes from rank q, and is as long as rank q says */
} tutti_alltoallv_arguments;
TUTTI_EXPORT tutti_status tutti_alltoallv_init(tutti_communicator* communicator,
                                               const tutti_alltoallv_arguments* arguments,
                                               tutti_operation** operation, tutti_failure* failure);

typedef struct {
  size_t struct_size;
  const void* source; /* gather: `bytes`; scatter: at the root, `bytes` for each rank */
  void* target;       /* gather: at the root, `bytes` from each rank; scatter: `bytes` */
  int64_t bytes;      /* of one block */
  int32_t root;
  int32_t reserved;
} tutti_gather_arguments;
typedef tutti_gather_arguments tutti_scatter_arguments;
/* Block q of the root's target = the source of rank q. */
TUTTI_EXPORT tutti_status tutti_gather_init(tutti_communicator* communicator,
                                            const tutti_gather_arguments* arguments,
                                            tutti_operation** operation, tutti_failure* failure);
/* The target of rank p = block p of the root's source. */
TUTTI_EXPORT tutti_status tutti_scatter_init(tutti_communicator* communicator,
                                             const tutti_scatter_arguments* arguments,
                                             tutti_operation** operation, tutti_failure* failure);

typedef struct {
  size_t struct_size;
  const void* source;
  void* target;
  int64_t bytes; /* of this rank's block: of the source in gatherv, the target in scatterv */
  tutti_block_layout blocks; /* at the root: of the target in gatherv, of the source in scatterv */
  int32_t root;
  int32_t reserved;
} tutti_gatherv_arguments;
typedef tutti_gatherv_arguments tutti_scatterv_arguments;
TUTTI_EXPORT tutti_status tutti_gatherv_init(tutti_communicator* communicator,
                                             const tutti_gatherv_arguments* arguments,
                                             tutti_operation** operation, tutti_failure* failure);
TUTTI_EXPORT tutti_status tutti_scatterv_init(tutti_communicator* communicator,
                                              const tutti_scatterv_arguments* arguments,
                                              tutti_operation** operation, tutti_failure* failure);

typedef struct {
  size_t struct_size;
  const void* source;            /* the blocks of all ranks, one after the other */
  void* target;                  /* this rank's block */
  const int64_t* element_counts; /* of each rank's block */
  tutti_reduction reduction;
  int32_t agreement;
  int32_t algorithm; /* automatic or TUTTI_ALGORITHM_SHARED_RING */
} tutti_reduce_scatter_arguments;
/* The target of rank p = block p of all sources combined. */
TUTTI_EXPORT tutti_status tutti_reduce_scatter_init(tutti_communicator* communicator,
                                                    const tutti_reduce_scatter_arguments* arguments,
                                                    tutti_operation** operation,
                                                    tutti_failure* failure);

#ifdef __cplusplus
}
#endif

#endif
