FROM oven/bun:1.4.5 AS build
WORKDIR /build
COPY package.json bun.lock bunfig.toml tsconfig.json ./
RUN bun install --frozen-lockfile --production
COPY drizzle drizzle
COPY src src
# The commit of the build, as in: docker build --build-arg BUILD_COMMIT=$(git rev-parse HEAD) .
ARG BUILD_COMMIT=unknown
RUN bun src/build/main.ts

# Debian: on musl the native module of libSQL does not load in Bun.
FROM oven/bun:1.4.5-slim
ENV NODE_ENV=production HOST=0.0.0.0
WORKDIR /app
COPY --from=build /build/dist ./
RUN mkdir data && chown bun:bun data
USER bun
VOLUME /app/data
EXPOSE 3000
STOPSIGNAL SIGTERM
# Liveness: an instance whose database is unreachable must not be restarted.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s CMD ["bun", "--no-install", "-e", "process.env.no_proxy = '*'; process.exit((await fetch('http://127.0.0.1:' + (process.env.PORT ?? 3000) + '/health/live')).ok ? 0 : 1)"]
CMD ["bun", "--no-install", "src/main.js"]
