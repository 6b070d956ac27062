/** Preload for a service: the clock starts on a fixed day, because some responses depend on the date. */
const behindMs = Date.now() - Date.parse('2026-01-15T12:00:00Z');

globalThis.Date = new Proxy(Date, {
  construct: (target, given, newTarget) =>
    Reflect.construct(target, given.length === 0 ? [target.now() - behindMs] : given, newTarget),
  get: (target, name, receiver) =>
    name === 'now' ? () => target.now() - behindMs : Reflect.get(target, name, receiver),
});
