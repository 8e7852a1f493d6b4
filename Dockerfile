# One tandem instance. Not built on the machine where tandem is developed, which has no container engine.
FROM node:22-slim AS build
WORKDIR /tandem
COPY package.json package-lock.json .npmrc ./
RUN npm ci --ignore-scripts
COPY tsconfig.json tsconfig.build.json ./
COPY src ./src
COPY machines ./machines
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
COPY --from=build /tandem/dist ./dist
RUN chmod 755 dist/src/main.js && ln -s /tandem/dist/src/main.js /usr/local/bin/tandem
USER node
# The API listens on 127.0.0.1 of this container, so the health check asks that address.
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s --retries=3 \
  CMD ["node", "-e", "fetch('http://127.0.0.1:27182/healthz').then((answer) => process.exit(answer.ok ? 0 : 1), () => process.exit(1))"]
ENTRYPOINT ["tandem"]
