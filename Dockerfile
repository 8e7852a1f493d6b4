# One tandem instance. Not built on the machine where tandem is developed, which has no container engine. The base image is not pinned
# by a digest, because none could be verified there. Pin it where you build: node:22-slim@sha256:…
FROM node:22-slim AS build
WORKDIR /tandem
COPY package.json package-lock.json .npmrc ./
RUN npm ci --ignore-scripts
COPY tsconfig.json tsconfig.build.json ./
COPY src ./src
COPY machines ./machines
COPY scripts/bundle.mjs ./scripts/
RUN npm run build

FROM node:22-slim AS dependencies
WORKDIR /tandem
COPY package.json package-lock.json .npmrc ./
RUN npm ci --omit=dev --ignore-scripts

FROM node:22-slim
ENV NODE_ENV=production
WORKDIR /tandem
COPY package.json LICENSE README.md ./
COPY --from=dependencies /tandem/node_modules ./node_modules
# The instance serves these pages.
COPY docs ./docs
COPY --from=build /tandem/dist/main.js ./dist/
COPY --from=build /tandem/dist/chunks ./dist/chunks
COPY --from=build /tandem/dist/dashboard ./dist/dashboard
RUN chmod 755 dist/main.js && ln -s /tandem/dist/main.js /usr/local/bin/tandem
USER node
# Asks the instance at the port, address and scheme of its options in the environment and in TANDEM_CONFIG. The health check
# does not see the arguments of the container, so do not give --port, --bind or --tlsCert there.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 CMD ["sh", "-c", "tandem health || exit 1"]
ENTRYPOINT ["tandem"]
