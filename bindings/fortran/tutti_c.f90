! The C interface of tutti (tutti/tutti.h), name by name; module tutti adds to it what takes arrays.
! Written by from_header.py: change that, or the header.
!
! Pointers to what C may leave out are optional.  A handle is passed as the one pointer that it is.
module tutti_c
  use, intrinsic :: iso_c_binding
  implicit none
  public

  integer(c_int64_t), parameter :: TUTTI_WAIT_FOREVER = huge(0_c_int64_t)
  integer(c_int64_t), parameter :: TUTTI_NEVER = huge(0_c_int64_t)
  integer(c_int32_t), parameter :: TUTTI_NO_COLOR = -1_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_OK = 0_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_IN_PROGRESS = 1_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_TIMED_OUT = 2_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_PEER_FAILED = -1_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_TRANSPORT_FAILED = -2_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_ABORTED = -3_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_INVALID_ARGUMENT = -4_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_SETUP_FAILED = -5_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_ERROR_NONE = 0_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_ERROR_INVALID_ARGUMENT = 1_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_ERROR_MISMATCH = 2_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_ERROR_UNSUPPORTED = 3_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_ERROR_LIMIT_EXCEEDED = 4_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_ERROR_NO_DEVICE = 5_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_ERROR_TIMED_OUT = 6_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_ERROR_PEER_FAILED = 7_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_ERROR_SYSTEM = 8_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_DEFAULT = 0_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_YES = 1_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_NO = 2_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_CHECK_OFF = 1_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_CHECK_LOCAL = 2_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_CHECK_COLLECTIVE = 3_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_CONNECT_EXCHANGE = 1_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_CONNECT_CM = 2_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_NOTIFY_IMMEDIATE = 1_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_NOTIFY_FLAG = 2_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_WAIT_AUTOMATIC = 1_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_WAIT_SPIN = 2_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_WAIT_YIELD = 3_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_WAIT_BLOCK = 4_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_SHARED_AUTOMATIC = 1_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_SHARED_WORDS = 2_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_SHARED_REPUBLISHED = 3_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_TUNING_MODE_FILE = 1_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_TUNING_MODE_MODEL = 2_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_TUNING_MODE_FIRST_CALL = 3_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_TUNING_MODE_OFF = 4_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_PLACEMENT_BLOCK = 1_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_PLACEMENT_CYCLIC = 2_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_PLACEMENT_RANDOM = 3_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_SCOPE_RANK = 0_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_SCOPE_NODE = 1_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_OTHER = 0_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_INT32 = 1_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_UINT32 = 2_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_INT64 = 3_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_UINT64 = 4_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_FLOAT = 5_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_DOUBLE = 6_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_FLOAT16 = 7_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_BFLOAT16 = 8_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_USER = 0_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_SUM = 1_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_PRODUCT = 2_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_MIN = 3_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_MAX = 4_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_BIT_AND = 5_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_BIT_OR = 6_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_BIT_XOR = 7_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_LOGICAL_AND = 8_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_LOGICAL_OR = 9_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_IDENTICAL = 0_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_REPRODUCIBLE = 1_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_RELAXED = 2_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_ALGORITHM_AUTOMATIC = 0_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_ALGORITHM_DISSEMINATION = 1_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_ALGORITHM_TWO_PARTIAL = 2_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_ALGORITHM_RECURSIVE_MULTIPLYING = 3_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_ALGORITHM_NWAY = 4_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_ALGORITHM_NWAY_INVERSE = 5_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_ALGORITHM_DECOMPOSITION = 6_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_ALGORITHM_DECOMPOSITION_DIGITS = 7_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_ALGORITHM_CANONICAL_DISSEMINATION = 8_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_ALGORITHM_CHUNKED_FOLD = 9_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_ALGORITHM_RING = 10_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_ALGORITHM_SHARED_RING = 11_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_ALGORITHM_CIRCULANT = 12_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_ALGORITHM_CANONICAL_HALVING = 13_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_ACROSS_AUTOMATIC = 0_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_ACROSS_FLAT = 1_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_ACROSS_LEADER = 2_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_ACROSS_LANES = 3_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_TREE_AUTOMATIC = 0_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_TREE_KNOMIAL = 1_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_TREE_BINOMIAL = 2_c_int32_t
  integer(c_int32_t), parameter :: TUTTI_TREE_FIBONACCI = 3_c_int32_t

  type, bind(c) :: tutti_exchange
    type(c_ptr) :: handle = c_null_ptr
  end type tutti_exchange

  type, bind(c) :: tutti_context
    type(c_ptr) :: handle = c_null_ptr
  end type tutti_context

  type, bind(c) :: tutti_communicator
    type(c_ptr) :: handle = c_null_ptr
  end type tutti_communicator

  type, bind(c) :: tutti_segment
    type(c_ptr) :: handle = c_null_ptr
  end type tutti_segment

  type, bind(c) :: tutti_operation
    type(c_ptr) :: handle = c_null_ptr
  end type tutti_operation

  type, bind(c) :: tutti_failure
    integer(c_int32_t) :: status = 0_c_int32_t
    integer(c_int32_t) :: error = 0_c_int32_t
    integer(c_int32_t) :: peer = 0_c_int32_t
    integer(c_int32_t) :: system_errno = 0_c_int32_t
    integer(c_int64_t) :: operation = 0_c_int64_t
    integer(c_int64_t) :: sequence = 0_c_int64_t
    integer(c_int32_t) :: round = 0_c_int32_t
    integer(c_int32_t) :: completion = 0_c_int32_t
    integer(c_int64_t) :: reserved(4) = 0_c_int64_t
    character(kind=c_char) :: text(1024) = c_null_char
  end type tutti_failure

  type, bind(c) :: tutti_tcp_options
    integer(c_size_t) :: struct_size = 40_c_size_t
    integer(c_int32_t) :: rank = 0_c_int32_t
    integer(c_int32_t) :: rank_count = 0_c_int32_t
    type(c_ptr) :: rendezvous = c_null_ptr
    type(c_ptr) :: secret = c_null_ptr
    integer(c_int64_t) :: timeout_ns = 0_c_int64_t
  end type tutti_tcp_options

  type, bind(c) :: tutti_exchange_functions
    integer(c_size_t) :: struct_size = 40_c_size_t
    integer(c_int32_t) :: rank = 0_c_int32_t
    integer(c_int32_t) :: rank_count = 0_c_int32_t
    type(c_ptr) :: context = c_null_ptr
    type(c_funptr) :: allgather = c_null_funptr
    type(c_funptr) :: barrier = c_null_funptr
  end type tutti_exchange_functions

  type, bind(c) :: tutti_local_result
    integer(c_int32_t) :: exit_status = 0_c_int32_t
    integer(c_int32_t) :: signal = 0_c_int32_t
  end type tutti_local_result

  type, bind(c) :: tutti_counts
    type(c_ptr) :: values = c_null_ptr
    integer(c_int32_t) :: count = 0_c_int32_t
    integer(c_int32_t) :: reserved = 0_c_int32_t
  end type tutti_counts

  type, bind(c) :: tutti_context_options
    integer(c_size_t) :: struct_size = 176_c_size_t
    type(c_ptr) :: device = c_null_ptr
    integer(c_int64_t) :: arena_bytes = 0_c_int64_t
    integer(c_int64_t) :: chunk_bytes = 0_c_int64_t
    integer(c_int64_t) :: single_copy_bytes = 0_c_int64_t
    integer(c_int64_t) :: setup_timeout_ns = 0_c_int64_t
    integer(c_int64_t) :: domains_above = 0_c_int64_t
    integer(c_int32_t) :: check = 0_c_int32_t
    integer(c_int32_t) :: register_buffers = 0_c_int32_t
    integer(c_int32_t) :: connect = 0_c_int32_t
    integer(c_int32_t) :: notify = 0_c_int32_t
    integer(c_int32_t) :: wait = 0_c_int32_t
    integer(c_int32_t) :: shared_notifications = 0_c_int32_t
    integer(c_int32_t) :: placement = 0_c_int32_t
    integer(c_int32_t) :: reserved = 0_c_int32_t
    type(tutti_counts) :: per_round
    type(tutti_counts) :: ranks_per_node
    type(tutti_counts) :: ranks_per_domain
    integer(c_int64_t) :: connections_max = 0_c_int64_t
    type(c_ptr) :: tuning_file = c_null_ptr
    integer(c_int32_t) :: tuning = 0_c_int32_t
    integer(c_int32_t) :: tuning_keeps_bits = 0_c_int32_t
    integer(c_int32_t) :: tuning_appends = 0_c_int32_t
    integer(c_int32_t) :: shrinkable = 0_c_int32_t
    integer(c_int64_t) :: detection_bound_ns = 0_c_int64_t
  end type tutti_context_options

  type, bind(c) :: tutti_reduction
    integer(c_int32_t) :: which = 0_c_int32_t
    integer(c_int32_t) :: type = 0_c_int32_t
    type(c_funptr) :: combine = c_null_funptr
    type(c_funptr) :: inverse = c_null_funptr
    type(c_ptr) :: context = c_null_ptr
    integer(c_int64_t) :: element_bytes = 0_c_int64_t
    integer(c_int32_t) :: commutative = 0_c_int32_t
    integer(c_int32_t) :: idempotent = 0_c_int32_t
    integer(c_int32_t) :: exact = 0_c_int32_t
    integer(c_int32_t) :: reserved = 0_c_int32_t
  end type tutti_reduction

  type, bind(c) :: tutti_exact_sum
    integer(c_int64_t) :: words(5) = 0_c_int64_t
  end type tutti_exact_sum

  type, bind(c) :: tutti_barrier_arguments
    integer(c_size_t) :: struct_size = 32_c_size_t
    type(tutti_counts) :: per_round
    integer(c_int32_t) :: algorithm = 0_c_int32_t
    integer(c_int32_t) :: across = 0_c_int32_t
  end type tutti_barrier_arguments

  type, bind(c) :: tutti_allreduce_arguments
    integer(c_size_t) :: struct_size = 120_c_size_t
    type(c_ptr) :: source = c_null_ptr
    type(c_ptr) :: target = c_null_ptr
    integer(c_int64_t) :: element_count = 0_c_int64_t
    type(tutti_reduction) :: reduction
    type(tutti_counts) :: per_round
    integer(c_int32_t) :: agreement = 0_c_int32_t
    integer(c_int32_t) :: algorithm = 0_c_int32_t
    integer(c_int32_t) :: across = 0_c_int32_t
    integer(c_int32_t) :: reserved = 0_c_int32_t
  end type tutti_allreduce_arguments

  type, bind(c) :: tutti_allreduce_ssp_arguments
    integer(c_size_t) :: struct_size = 96_c_size_t
    type(c_ptr) :: source = c_null_ptr
    type(c_ptr) :: target = c_null_ptr
    integer(c_int64_t) :: element_count = 0_c_int64_t
    type(tutti_reduction) :: reduction
    integer(c_int32_t) :: slack = 0_c_int32_t
    integer(c_int32_t) :: reserved = 0_c_int32_t
  end type tutti_allreduce_ssp_arguments

  type, bind(c) :: tutti_broadcast_arguments
    integer(c_size_t) :: struct_size = 48_c_size_t
    type(c_ptr) :: buffer = c_null_ptr
    integer(c_int64_t) :: bytes = 0_c_int64_t
    integer(c_int64_t) :: element_bytes = 0_c_int64_t
    real(c_double) :: data_fraction = 0.0_c_double
    integer(c_int32_t) :: root = 0_c_int32_t
    integer(c_int32_t) :: tree = 0_c_int32_t
  end type tutti_broadcast_arguments

  type, bind(c) :: tutti_reduce_arguments
    integer(c_size_t) :: struct_size = 120_c_size_t
    type(c_ptr) :: source = c_null_ptr
    type(c_ptr) :: target = c_null_ptr
    integer(c_int64_t) :: element_count = 0_c_int64_t
    type(tutti_reduction) :: reduction
    real(c_double) :: data_fraction = 0.0_c_double
    real(c_double) :: rank_fraction = 0.0_c_double
    integer(c_int32_t) :: root = 0_c_int32_t
    integer(c_int32_t) :: agreement = 0_c_int32_t
    integer(c_int32_t) :: tree = 0_c_int32_t
    integer(c_int32_t) :: reserved = 0_c_int32_t
  end type tutti_reduce_arguments

  type, bind(c) :: tutti_scan_arguments
    integer(c_size_t) :: struct_size = 88_c_size_t
    type(c_ptr) :: source = c_null_ptr
    type(c_ptr) :: target = c_null_ptr
    integer(c_int64_t) :: element_count = 0_c_int64_t
    type(tutti_reduction) :: reduction
  end type tutti_scan_arguments

  type, bind(c) :: tutti_block_layout
    type(c_ptr) :: bytes = c_null_ptr
    type(c_ptr) :: offsets = c_null_ptr
  end type tutti_block_layout

  type, bind(c) :: tutti_allgather_arguments
    integer(c_size_t) :: struct_size = 40_c_size_t
    type(c_ptr) :: source = c_null_ptr
    type(c_ptr) :: target = c_null_ptr
    integer(c_int64_t) :: bytes = 0_c_int64_t
    integer(c_int32_t) :: algorithm = 0_c_int32_t
    integer(c_int32_t) :: reserved = 0_c_int32_t
  end type tutti_allgather_arguments

  type, bind(c) :: tutti_allgatherv_arguments
    integer(c_size_t) :: struct_size = 48_c_size_t
    type(c_ptr) :: source = c_null_ptr
    type(c_ptr) :: target = c_null_ptr
    type(tutti_block_layout) :: blocks
    integer(c_int32_t) :: algorithm = 0_c_int32_t
    integer(c_int32_t) :: reserved = 0_c_int32_t
  end type tutti_allgatherv_arguments

  type, bind(c) :: tutti_alltoallv_arguments
    integer(c_size_t) :: struct_size = 56_c_size_t
    type(c_ptr) :: source = c_null_ptr
    type(c_ptr) :: target = c_null_ptr
    type(tutti_block_layout) :: source_blocks
    type(tutti_block_layout) :: target_blocks
  end type tutti_alltoallv_arguments

  type, bind(c) :: tutti_gather_arguments
    integer(c_size_t) :: struct_size = 40_c_size_t
    type(c_ptr) :: source = c_null_ptr
    type(c_ptr) :: target = c_null_ptr
    integer(c_int64_t) :: bytes = 0_c_int64_t
    integer(c_int32_t) :: root = 0_c_int32_t
    integer(c_int32_t) :: reserved = 0_c_int32_t
  end type tutti_gather_arguments

  type, bind(c) :: tutti_gatherv_arguments
    integer(c_size_t) :: struct_size = 56_c_size_t
    type(c_ptr) :: source = c_null_ptr
    type(c_ptr) :: target = c_null_ptr
    integer(c_int64_t) :: bytes = 0_c_int64_t
    type(tutti_block_layout) :: blocks
    integer(c_int32_t) :: root = 0_c_int32_t
    integer(c_int32_t) :: reserved = 0_c_int32_t
  end type tutti_gatherv_arguments

  type, bind(c) :: tutti_reduce_scatter_arguments
    integer(c_size_t) :: struct_size = 96_c_size_t
    type(c_ptr) :: source = c_null_ptr
    type(c_ptr) :: target = c_null_ptr
    type(c_ptr) :: element_counts = c_null_ptr
    type(tutti_reduction) :: reduction
    integer(c_int32_t) :: agreement = 0_c_int32_t
    integer(c_int32_t) :: algorithm = 0_c_int32_t
  end type tutti_reduce_scatter_arguments

  interface
    function tutti_status_name(status) bind(c)
      import
      integer(c_int32_t), value :: status
      type(c_ptr) :: tutti_status_name
    end function tutti_status_name
    function tutti_tcp_exchange(options, exchange, failure) bind(c)
      import
      type(tutti_tcp_options), intent(in), optional :: options
      type(tutti_exchange), intent(out) :: exchange
      type(tutti_failure), intent(inout), optional :: failure
      integer(c_int32_t) :: tutti_tcp_exchange
    end function tutti_tcp_exchange
    function tutti_user_exchange(functions, exchange, failure) bind(c)
      import
      type(tutti_exchange_functions), intent(in), optional :: functions
      type(tutti_exchange), intent(out) :: exchange
      type(tutti_failure), intent(inout), optional :: failure
      integer(c_int32_t) :: tutti_user_exchange
    end function tutti_user_exchange
    function tutti_exchange_free(exchange) bind(c)
      import
      type(tutti_exchange), value :: exchange
      integer(c_int32_t) :: tutti_exchange_free
    end function tutti_exchange_free
    function tutti_run_local(rank_count, body, context, results, failure) bind(c)
      import
      integer(c_int32_t), value :: rank_count
      type(c_funptr), value :: body
      type(c_ptr), value :: context
      type(tutti_local_result), intent(inout), optional :: results(*)
      type(tutti_failure), intent(inout), optional :: failure
      integer(c_int32_t) :: tutti_run_local
    end function tutti_run_local
    function tutti_context_create(options, context, failure) bind(c)
      import
      type(tutti_context_options), intent(in), optional :: options
      type(tutti_context), intent(out) :: context
      type(tutti_failure), intent(inout), optional :: failure
      integer(c_int32_t) :: tutti_context_create
    end function tutti_context_create
    function tutti_context_free(context) bind(c)
      import
      type(tutti_context), value :: context
      integer(c_int32_t) :: tutti_context_free
    end function tutti_context_free
    function tutti_device_name(context, text, bytes) bind(c)
      import
      type(tutti_context), value :: context
      character(kind=c_char), intent(inout), optional :: text(*)
      integer(c_size_t), value :: bytes
      integer(c_size_t) :: tutti_device_name
    end function tutti_device_name
    function tutti_device_choice(context, text, bytes) bind(c)
      import
      type(tutti_context), value :: context
      character(kind=c_char), intent(inout), optional :: text(*)
      integer(c_size_t), value :: bytes
      integer(c_size_t) :: tutti_device_choice
    end function tutti_device_choice
    function tutti_communicator_create(context, exchange, communicator, failure) bind(c)
      import
      type(tutti_context), value :: context
      type(tutti_exchange), value :: exchange
      type(tutti_communicator), intent(out) :: communicator
      type(tutti_failure), intent(inout), optional :: failure
      integer(c_int32_t) :: tutti_communicator_create
    end function tutti_communicator_create
    function tutti_communicator_free(communicator) bind(c)
      import
      type(tutti_communicator), value :: communicator
      integer(c_int32_t) :: tutti_communicator_free
    end function tutti_communicator_free
    function tutti_communicator_split(communicator, color, key, part, failure) bind(c)
      import
      type(tutti_communicator), value :: communicator
      integer(c_int32_t), value :: color
      integer(c_int64_t), value :: key
      type(tutti_communicator), intent(out) :: part
      type(tutti_failure), intent(inout), optional :: failure
      integer(c_int32_t) :: tutti_communicator_split
    end function tutti_communicator_split
    function tutti_communicator_shrink(communicator, timeout_ns, survivors, failure) bind(c)
      import
      type(tutti_communicator), value :: communicator
      integer(c_int64_t), value :: timeout_ns
      type(tutti_communicator), intent(out) :: survivors
      type(tutti_failure), intent(inout), optional :: failure
      integer(c_int32_t) :: tutti_communicator_shrink
    end function tutti_communicator_shrink
    function tutti_rank(communicator) bind(c)
      import
      type(tutti_communicator), value :: communicator
      integer(c_int32_t) :: tutti_rank
    end function tutti_rank
    function tutti_rank_count(communicator) bind(c)
      import
      type(tutti_communicator), value :: communicator
      integer(c_int32_t) :: tutti_rank_count
    end function tutti_rank_count
    function tutti_node(communicator) bind(c)
      import
      type(tutti_communicator), value :: communicator
      integer(c_int32_t) :: tutti_node
    end function tutti_node
    function tutti_node_count(communicator) bind(c)
      import
      type(tutti_communicator), value :: communicator
      integer(c_int32_t) :: tutti_node_count
    end function tutti_node_count
    function tutti_node_remark(communicator, text, bytes) bind(c)
      import
      type(tutti_communicator), value :: communicator
      character(kind=c_char), intent(inout), optional :: text(*)
      integer(c_size_t), value :: bytes
      integer(c_size_t) :: tutti_node_remark
    end function tutti_node_remark
    function tutti_abort(communicator) bind(c)
      import
      type(tutti_communicator), value :: communicator
      integer(c_int32_t) :: tutti_abort
    end function tutti_abort
    function tutti_synchronize(communicator, failure) bind(c)
      import
      type(tutti_communicator), value :: communicator
      type(tutti_failure), intent(inout), optional :: failure
      integer(c_int32_t) :: tutti_synchronize
    end function tutti_synchronize
    function tutti_cancel(communicator, failure) bind(c)
      import
      type(tutti_communicator), value :: communicator
      type(tutti_failure), intent(inout), optional :: failure
      integer(c_int32_t) :: tutti_cancel
    end function tutti_cancel
    function tutti_progress(communicator) bind(c)
      import
      type(tutti_communicator), value :: communicator
      integer(c_int32_t) :: tutti_progress
    end function tutti_progress
    function tutti_report(communicator, as_json, text, bytes) bind(c)
      import
      type(tutti_communicator), value :: communicator
      integer(c_int32_t), value :: as_json
      character(kind=c_char), intent(inout), optional :: text(*)
      integer(c_size_t), value :: bytes
      integer(c_size_t) :: tutti_report
    end function tutti_report
    function tutti_get_failure(communicator, failure) bind(c)
      import
      type(tutti_communicator), value :: communicator
      type(tutti_failure), intent(inout), optional :: failure
      integer(c_int32_t) :: tutti_get_failure
    end function tutti_get_failure
    function tutti_segment_allocate(communicator, bytes, scope, segment, failure) bind(c)
      import
      type(tutti_communicator), value :: communicator
      integer(c_int64_t), value :: bytes
      integer(c_int32_t), value :: scope
      type(tutti_segment), intent(out) :: segment
      type(tutti_failure), intent(inout), optional :: failure
      integer(c_int32_t) :: tutti_segment_allocate
    end function tutti_segment_allocate
    function tutti_segment_data(segment) bind(c)
      import
      type(tutti_segment), value :: segment
      type(c_ptr) :: tutti_segment_data
    end function tutti_segment_data
    function tutti_segment_size(segment) bind(c)
      import
      type(tutti_segment), value :: segment
      integer(c_int64_t) :: tutti_segment_size
    end function tutti_segment_size
    function tutti_segment_free(segment) bind(c)
      import
      type(tutti_segment), value :: segment
      integer(c_int32_t) :: tutti_segment_free
    end function tutti_segment_free
    subroutine tutti_fail(context, text) bind(c)
      import
      type(c_ptr), value :: context
      character(kind=c_char), intent(in), optional :: text(*)
    end subroutine tutti_fail
    subroutine tutti_exact_sum_add(sum, values, count) bind(c)
      import
      type(tutti_exact_sum), intent(inout) :: sum
      real(c_double), intent(in) :: values(*)
      integer(c_size_t), value :: count
    end subroutine tutti_exact_sum_add
    subroutine tutti_exact_sum_add_floats(sum, values, count) bind(c)
      import
      type(tutti_exact_sum), intent(inout) :: sum
      real(c_float), intent(in) :: values(*)
      integer(c_size_t), value :: count
    end subroutine tutti_exact_sum_add_floats
    subroutine tutti_exact_sum_add_products(sum, left, right, count) bind(c)
      import
      type(tutti_exact_sum), intent(inout) :: sum
      real(c_double), intent(in) :: left(*)
      real(c_double), intent(in) :: right(*)
      integer(c_size_t), value :: count
    end subroutine tutti_exact_sum_add_products
    subroutine tutti_exact_sum_merge(sum, other) bind(c)
      import
      type(tutti_exact_sum), intent(inout) :: sum
      type(tutti_exact_sum), intent(in) :: other
    end subroutine tutti_exact_sum_merge
    function tutti_exact_sum_value(sum) bind(c)
      import
      type(tutti_exact_sum), intent(in) :: sum
      real(c_double) :: tutti_exact_sum_value
    end function tutti_exact_sum_value
    function tutti_exact_sum_value_as_float(sum) bind(c)
      import
      type(tutti_exact_sum), intent(in) :: sum
      real(c_float) :: tutti_exact_sum_value_as_float
    end function tutti_exact_sum_value_as_float
    function tutti_exact_addition() bind(c)
      import
      type(tutti_reduction) :: tutti_exact_addition
    end function tutti_exact_addition
    function tutti_start(operation) bind(c)
      import
      type(tutti_operation), value :: operation
      integer(c_int32_t) :: tutti_start
    end function tutti_start
    function tutti_start_on(operation, source, target) bind(c)
      import
      type(tutti_operation), value :: operation
      type(c_ptr), value :: source
      type(c_ptr), value :: target
      integer(c_int32_t) :: tutti_start_on
    end function tutti_start_on
    function tutti_test(operation) bind(c)
      import
      type(tutti_operation), value :: operation
      integer(c_int32_t) :: tutti_test
    end function tutti_test
    function tutti_wait(operation, timeout_ns) bind(c)
      import
      type(tutti_operation), value :: operation
      integer(c_int64_t), value :: timeout_ns
      integer(c_int32_t) :: tutti_wait
    end function tutti_wait
    function tutti_in_flight(operation) bind(c)
      import
      type(tutti_operation), value :: operation
      integer(c_int32_t) :: tutti_in_flight
    end function tutti_in_flight
    function tutti_operation_free(operation) bind(c)
      import
      type(tutti_operation), value :: operation
      integer(c_int32_t) :: tutti_operation_free
    end function tutti_operation_free
    function tutti_set_label(operation, label) bind(c)
      import
      type(tutti_operation), value :: operation
      character(kind=c_char), intent(in), optional :: label(*)
      integer(c_int32_t) :: tutti_set_label
    end function tutti_set_label
    function tutti_describe(operation, text, bytes) bind(c)
      import
      type(tutti_operation), value :: operation
      character(kind=c_char), intent(inout), optional :: text(*)
      integer(c_size_t), value :: bytes
      integer(c_size_t) :: tutti_describe
    end function tutti_describe
    function tutti_algorithm(operation, text, bytes) bind(c)
      import
      type(tutti_operation), value :: operation
      character(kind=c_char), intent(inout), optional :: text(*)
      integer(c_size_t), value :: bytes
      integer(c_size_t) :: tutti_algorithm
    end function tutti_algorithm
    function tutti_explanation(operation, text, bytes) bind(c)
      import
      type(tutti_operation), value :: operation
      character(kind=c_char), intent(inout), optional :: text(*)
      integer(c_size_t), value :: bytes
      integer(c_size_t) :: tutti_explanation
    end function tutti_explanation
    function tutti_per_round(operation, per_round, room) bind(c)
      import
      type(tutti_operation), value :: operation
      integer(c_int32_t), intent(inout), optional :: per_round(*)
      integer(c_size_t), value :: room
      integer(c_size_t) :: tutti_per_round
    end function tutti_per_round
    function tutti_notify(operation) bind(c)
      import
      type(tutti_operation), value :: operation
      integer(c_int32_t) :: tutti_notify
    end function tutti_notify
    function tutti_covered_elements(operation) bind(c)
      import
      type(tutti_operation), value :: operation
      integer(c_int64_t) :: tutti_covered_elements
    end function tutti_covered_elements
    function tutti_covered_ranks(operation) bind(c)
      import
      type(tutti_operation), value :: operation
      integer(c_int32_t) :: tutti_covered_ranks
    end function tutti_covered_ranks
    function tutti_staleness(operation) bind(c)
      import
      type(tutti_operation), value :: operation
      integer(c_int64_t) :: tutti_staleness
    end function tutti_staleness
    function tutti_barrier_init(communicator, arguments, operation, failure) bind(c)
      import
      type(tutti_communicator), value :: communicator
      type(tutti_barrier_arguments), intent(in), optional :: arguments
      type(tutti_operation), intent(out) :: operation
      type(tutti_failure), intent(inout), optional :: failure
      integer(c_int32_t) :: tutti_barrier_init
    end function tutti_barrier_init
    function tutti_allreduce_init(communicator, arguments, operation, failure) bind(c)
      import
      type(tutti_communicator), value :: communicator
      type(tutti_allreduce_arguments), intent(in), optional :: arguments
      type(tutti_operation), intent(out) :: operation
      type(tutti_failure), intent(inout), optional :: failure
      integer(c_int32_t) :: tutti_allreduce_init
    end function tutti_allreduce_init
    function tutti_allreduce_ssp_init(communicator, arguments, operation, failure) bind(c)
      import
      type(tutti_communicator), value :: communicator
      type(tutti_allreduce_ssp_arguments), intent(in), optional :: arguments
      type(tutti_operation), intent(out) :: operation
      type(tutti_failure), intent(inout), optional :: failure
      integer(c_int32_t) :: tutti_allreduce_ssp_init
    end function tutti_allreduce_ssp_init
    function tutti_broadcast_init(communicator, arguments, operation, failure) bind(c)
      import
      type(tutti_communicator), value :: communicator
      type(tutti_broadcast_arguments), intent(in), optional :: arguments
      type(tutti_operation), intent(out) :: operation
      type(tutti_failure), intent(inout), optional :: failure
      integer(c_int32_t) :: tutti_broadcast_init
    end function tutti_broadcast_init
    function tutti_reduce_init(communicator, arguments, operation, failure) bind(c)
      import
      type(tutti_communicator), value :: communicator
      type(tutti_reduce_arguments), intent(in), optional :: arguments
      type(tutti_operation), intent(out) :: operation
      type(tutti_failure), intent(inout), optional :: failure
      integer(c_int32_t) :: tutti_reduce_init
    end function tutti_reduce_init
    function tutti_scan_init(communicator, arguments, operation, failure) bind(c)
      import
      type(tutti_communicator), value :: communicator
      type(tutti_scan_arguments), intent(in), optional :: arguments
      type(tutti_operation), intent(out) :: operation
      type(tutti_failure), intent(inout), optional :: failure
      integer(c_int32_t) :: tutti_scan_init
    end function tutti_scan_init
    function tutti_exscan_init(communicator, arguments, operation, failure) bind(c)
      import
      type(tutti_communicator), value :: communicator
      type(tutti_scan_arguments), intent(in), optional :: arguments
      type(tutti_operation), intent(out) :: operation
      type(tutti_failure), intent(inout), optional :: failure
      integer(c_int32_t) :: tutti_exscan_init
    end function tutti_exscan_init
    function tutti_allgather_init(communicator, arguments, operation, failure) bind(c)
      import
      type(tutti_communicator), value :: communicator
      type(tutti_allgather_arguments), intent(in), optional :: arguments
      type(tutti_operation), intent(out) :: operation
      type(tutti_failure), intent(inout), optional :: failure
      integer(c_int32_t) :: tutti_allgather_init
    end function tutti_allgather_init
    function tutti_alltoall_init(communicator, arguments, operation, failure) bind(c)
      import
      type(tutti_communicator), value :: communicator
      type(tutti_allgather_arguments), intent(in), optional :: arguments
      type(tutti_operation), intent(out) :: operation
      type(tutti_failure), intent(inout), optional :: failure
      integer(c_int32_t) :: tutti_alltoall_init
    end function tutti_alltoall_init
    function tutti_allgatherv_init(communicator, arguments, operation, failure) bind(c)
      import
      type(tutti_communicator), value :: communicator
      type(tutti_allgatherv_arguments), intent(in), optional :: arguments
      type(tutti_operation), intent(out) :: operation
      type(tutti_failure), intent(inout), optional :: failure
      integer(c_int32_t) :: tutti_allgatherv_init
    end function tutti_allgatherv_init
    function tutti_alltoallv_init(communicator, arguments, operation, failure) bind(c)
      import
      type(tutti_communicator), value :: communicator
      type(tutti_alltoallv_arguments), intent(in), optional :: arguments
      type(tutti_operation), intent(out) :: operation
      type(tutti_failure), intent(inout), optional :: failure
      integer(c_int32_t) :: tutti_alltoallv_init
    end function tutti_alltoallv_init
    function tutti_gather_init(communicator, arguments, operation, failure) bind(c)
      import
      type(tutti_communicator), value :: communicator
      type(tutti_gather_arguments), intent(in), optional :: arguments
      type(tutti_operation), intent(out) :: operation
      type(tutti_failure), intent(inout), optional :: failure
      integer(c_int32_t) :: tutti_gather_init
    end function tutti_gather_init
    function tutti_scatter_init(communicator, arguments, operation, failure) bind(c)
      import
      type(tutti_communicator), value :: communicator
      type(tutti_gather_arguments), intent(in), optional :: arguments
      type(tutti_operation), intent(out) :: operation
      type(tutti_failure), intent(inout), optional :: failure
      integer(c_int32_t) :: tutti_scatter_init
    end function tutti_scatter_init
    function tutti_gatherv_init(communicator, arguments, operation, failure) bind(c)
      import
      type(tutti_communicator), value :: communicator
      type(tutti_gatherv_arguments), intent(in), optional :: arguments
      type(tutti_operation), intent(out) :: operation
      type(tutti_failure), intent(inout), optional :: failure
      integer(c_int32_t) :: tutti_gatherv_init
    end function tutti_gatherv_init
    function tutti_scatterv_init(communicator, arguments, operation, failure) bind(c)
      import
      type(tutti_communicator), value :: communicator
      type(tutti_gatherv_arguments), intent(in), optional :: arguments
      type(tutti_operation), intent(out) :: operation
      type(tutti_failure), intent(inout), optional :: failure
      integer(c_int32_t) :: tutti_scatterv_init
    end function tutti_scatterv_init
    function tutti_reduce_scatter_init(communicator, arguments, operation, failure) bind(c)
      import
      type(tutti_communicator), value :: communicator
      type(tutti_reduce_scatter_arguments), intent(in), optional :: arguments
      type(tutti_operation), intent(out) :: operation
      type(tutti_failure), intent(inout), optional :: failure
      integer(c_int32_t) :: tutti_reduce_scatter_init
    end function tutti_reduce_scatter_init
  end interface
end module tutti_c
