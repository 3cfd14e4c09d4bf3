# One static program and the certificates it trusts: `docker build --tag provisor .`
FROM rust:1.95.0-slim-bookworm AS build
# A C library that can be linked into the program, and a compiler for it: TLS and zstd are built from C.
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates musl-tools \
    && rm -rf /var/lib/apt/lists/*
# The compiler that the image has; without this, rust-toolchain.toml would fetch a formatter and lints.
ENV RUSTUP_TOOLCHAIN=1.95.0
RUN rustup target add "$(uname -m)-unknown-linux-musl"
WORKDIR /src
COPY . .
# `--build-arg FEATURES=aws` for an image that buys instances of EC2; COMMIT is what the metric `build_info` says.
ARG FEATURES=""
ARG COMMIT=""
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    target="$(uname -m)-unknown-linux-musl" \
    && PROVISOR_COMMIT="$COMMIT" cargo build --release --locked --target "$target" --features "$FEATURES" \
    && cp "target/$target/release/provisor" /provisor
# What is copied from here keeps its mode only below the folder that is named.
RUN mkdir -p /empty && mkdir -m 1777 /empty/tmp

# For pipelines: with a shell, Git, ssh, and the script that keeps one comment. `docker build --target ci`
FROM debian:12-slim AS ci
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates curl git jq openssh-client \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /provisor /usr/local/bin/provisor
COPY deploy/ci/provisor-comment /usr/local/bin/provisor-comment

# For clusters that follow a repository by ssh, which knows its user by name. `docker build --target ssh`
FROM debian:12-slim AS ssh
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates openssh-client \
    && rm -rf /var/lib/apt/lists/* \
    && echo "provisor:x:65532:65532:provisor:/tmp:/usr/sbin/nologin" >> /etc/passwd
COPY --from=build /provisor /provisor
ENV XDG_CACHE_HOME=/tmp
USER 65532:65532
ENTRYPOINT ["/provisor"]

# For clusters: nothing else. Repositories by https; by ssh with the image above.
FROM scratch
COPY --from=build /empty/ /
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /provisor /provisor
# Its user has no home.
ENV XDG_CACHE_HOME=/tmp
USER 65532:65532
ENTRYPOINT ["/provisor"]
