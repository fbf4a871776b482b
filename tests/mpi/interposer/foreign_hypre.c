/* A program of hypre, which knows nothing of tutti: the Laplace operator on a square of points,
 * rows distributed over the ranks, solved by conjugate gradient with algebraic multigrid, and by
 * GMRES with a diagonal one.  Residual norms are printed by hypre. */
#include <HYPRE.h>
#include <HYPRE_IJ_mv.h>
#include <HYPRE_krylov.h>
#include <HYPRE_parcsr_ls.h>
#include <mpi.h>
#include <stdio.h>

enum { width = 60 };

static int rank, ranks;

static void print_result(const char* solver, int iterations, double residual) {
  if (rank == 0) printf("%s: %d iterations, residual %.8e\n", solver, iterations, residual);
}

int main(int argument_count, char** arguments) {
  MPI_Init(&argument_count, &arguments);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  HYPRE_Init();
  const int rows = width * width;
  const int first = (int)((long)rows * rank / ranks);
  const int last = (int)((long)rows * (rank + 1) / ranks) - 1;

  HYPRE_IJMatrix matrix;
  HYPRE_IJVector right, unknown;
  HYPRE_IJMatrixCreate(MPI_COMM_WORLD, first, last, first, last, &matrix);
  HYPRE_IJMatrixSetObjectType(matrix, HYPRE_PARCSR);
  HYPRE_IJMatrixInitialize(matrix);
  HYPRE_IJVectorCreate(MPI_COMM_WORLD, first, last, &right);
  HYPRE_IJVectorSetObjectType(right, HYPRE_PARCSR);
  HYPRE_IJVectorInitialize(right);
  HYPRE_IJVectorCreate(MPI_COMM_WORLD, first, last, &unknown);
  HYPRE_IJVectorSetObjectType(unknown, HYPRE_PARCSR);
  HYPRE_IJVectorInitialize(unknown);
  for (int row = first; row <= last; ++row) {
    int columns[5], count = 0;
    double values[5];
    const double number = 1 + row % 7, zero = 0;
    columns[count] = row, values[count++] = 4;
    if (row % width > 0) columns[count] = row - 1, values[count++] = -1;
    if (row % width < width - 1) columns[count] = row + 1, values[count++] = -1;
    if (row >= width) columns[count] = row - width, values[count++] = -1;
    if (row < rows - width) columns[count] = row + width, values[count++] = -1;
    HYPRE_IJMatrixSetValues(matrix, 1, &count, &row, columns, values);
    HYPRE_IJVectorSetValues(right, 1, &row, &number);
    HYPRE_IJVectorSetValues(unknown, 1, &row, &zero);
  }
  HYPRE_IJMatrixAssemble(matrix);
  HYPRE_IJVectorAssemble(right);
  HYPRE_IJVectorAssemble(unknown);
  HYPRE_ParCSRMatrix a;
  HYPRE_ParVector b, x;
  HYPRE_IJMatrixGetObject(matrix, (void**)&a);
  HYPRE_IJVectorGetObject(right, (void**)&b);
  HYPRE_IJVectorGetObject(unknown, (void**)&x);

  int iterations = 0;
  double residual = 0;
  HYPRE_Solver solver, preconditioner;
  HYPRE_ParCSRPCGCreate(MPI_COMM_WORLD, &solver);
  HYPRE_PCGSetMaxIter(solver, 200);
  HYPRE_PCGSetTol(solver, 1e-9);
  HYPRE_PCGSetTwoNorm(solver, 1);
  HYPRE_PCGSetPrintLevel(solver, 2);
  HYPRE_BoomerAMGCreate(&preconditioner);
  HYPRE_BoomerAMGSetMaxIter(preconditioner, 1);
  HYPRE_BoomerAMGSetTol(preconditioner, 0);
  HYPRE_BoomerAMGSetRelaxType(preconditioner, 6);
  HYPRE_PCGSetPrecond(solver, (HYPRE_PtrToSolverFcn)HYPRE_BoomerAMGSolve,
                      (HYPRE_PtrToSolverFcn)HYPRE_BoomerAMGSetup, preconditioner);
  HYPRE_ParCSRPCGSetup(solver, a, b, x);
  HYPRE_ParCSRPCGSolve(solver, a, b, x);
  HYPRE_PCGGetNumIterations(solver, &iterations);
  HYPRE_PCGGetFinalRelativeResidualNorm(solver, &residual);
  print_result("conjugate gradient", iterations, residual);
  HYPRE_BoomerAMGDestroy(preconditioner);
  HYPRE_ParCSRPCGDestroy(solver);

  HYPRE_ParVectorSetConstantValues(x, 0);
  HYPRE_ParCSRGMRESCreate(MPI_COMM_WORLD, &solver);
  HYPRE_GMRESSetMaxIter(solver, 120);
  HYPRE_GMRESSetKDim(solver, 30);
  HYPRE_GMRESSetTol(solver, 1e-4);
  HYPRE_GMRESSetPrintLevel(solver, 2);
  HYPRE_GMRESSetPrecond(solver, (HYPRE_PtrToSolverFcn)HYPRE_ParCSRDiagScale,
                        (HYPRE_PtrToSolverFcn)HYPRE_ParCSRDiagScaleSetup, NULL);
  HYPRE_ParCSRGMRESSetup(solver, a, b, x);
  HYPRE_ParCSRGMRESSolve(solver, a, b, x);
  HYPRE_GMRESGetNumIterations(solver, &iterations);
  HYPRE_GMRESGetFinalRelativeResidualNorm(solver, &residual);
  print_result("gmres", iterations, residual);
  HYPRE_ParCSRGMRESDestroy(solver);

  HYPRE_IJMatrixDestroy(matrix);
  HYPRE_IJVectorDestroy(right);
  HYPRE_IJVectorDestroy(unknown);
  HYPRE_Finalize();
  MPI_Finalize();
  return 0;
}
