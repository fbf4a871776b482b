# Recipe for Spack (0.22 or later): copy this file to var/spack/repos/builtin/packages/tutti/, or to
# packages/tutti/ of a repository of your own (spack repo create), and then
#   spack install tutti +mpi ^openmpi
from spack.package import *


class Tutti(CMakePackage):
    """Persistent collective operations with the latency of the wire, straight on libibverbs, and
    through shared memory between the ranks of a host."""

    homepage = "https://tutti.invalid"
    # A clone: spack develop -p /path/to/tutti tutti@main
    git = "https://tutti.invalid/tutti.git"

    license("BSD-3-Clause")

    version("main", branch="main")

    variant("mpi", default=True, description="Ranks of MPI: libtutti_mpi_*, and MPI beside tutti in tutti-bench")
    variant("pmix", default=False, description="Ranks of a launcher with a PMIx server, without MPI: libtutti_pmix")
    variant("fortran", default=False, description="The module for Fortran")
    variant("python", default=False, description="The package for Python")
    variant("tools", default=True, description="tutti-bench, tutti-tune and tutti-info, with their man pages")
    variant("soft", default=True, description="The software device for programs that know nothing of tutti")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("fortran", type="build", when="+fortran")
    depends_on("cmake@3.25:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("python@3.9:", type="build", when="+tools")
    depends_on("nlohmann-json@3.10:", type="build")
    depends_on("cli11@2.3:", type="build", when="+tools")
    depends_on("fmt@9:", when="+tools")
    depends_on("rdma-core")
    depends_on("mpi", when="+mpi")
    depends_on("pmix@4:", when="+pmix")
    depends_on("py-pybind11@2.10:", type="build", when="+python")
    depends_on("python@3.9:", type=("build", "link", "run"), when="+python")
    depends_on("py-numpy", type="run", when="+python")

    extends("python", when="+python")

    conflicts("%gcc@:11", msg="tutti is C++20 as GCC 12 has it")
    conflicts("%clang@:13", msg="tutti is C++20 as Clang 14 has it")
    conflicts("platform=darwin", msg="tutti is for Linux")
    conflicts("platform=windows", msg="tutti is for Linux")

    def cmake_args(self):
        arguments = [
            self.define("TUTTI_TESTS", False),
            self.define("TUTTI_INSTALL", True),
            self.define_from_variant("TUTTI_BENCHMARKS", "tools"),
            self.define_from_variant("TUTTI_SOFTVERBS", "soft"),
            self.define_from_variant("TUTTI_PMIX", "pmix"),
            self.define_from_variant("TUTTI_FORTRAN", "fortran"),
            self.define_from_variant("TUTTI_PYTHON", "python"),
            # Only for the MPI of this installation, whatever else the machine has.
            self.define("TUTTI_INSTALL_MPI", self._mpi_names()),
        ]
        if self.spec.satisfies("+python"):
            arguments.append(self.define("TUTTI_PYTHON_EXECUTABLE", self.spec["python"].command.path))
        if self.spec.satisfies("+mpi"):
            arguments.append(self.define("MPI_C_COMPILER", self.spec["mpi"].mpicc))
        else:
            arguments.append(self.define("CMAKE_DISABLE_FIND_PACKAGE_MPI", True))
        return arguments

    def _mpi_names(self):
        if not self.spec.satisfies("+mpi"):
            return ""
        return "openmpi" if self.spec["mpi"].name == "openmpi" else "mpich"
