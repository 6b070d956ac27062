import type {
  Api as ApiOfApp,
  Operations as OperationsOfClient,
  ProblemKinds as ProblemKindsOfErrors,
} from '../client/api';

/** Mapped over again, so that what the compiler prints names nothing of the service. */
type Flat<Type> = Type extends infer Known ? { [Name in keyof Known]: Flat<Known[Name]> } : never;

declare const flat: {
  api: Flat<ApiOfApp>;
  operations: Flat<OperationsOfClient>;
  problemKinds: Flat<ProblemKindsOfErrors>;
};

// Inferred, which is what the compiler writes out in full.
export const Api = (() => flat.api)();
export const Operations = (() => flat.operations)();
export const ProblemKinds = (() => flat.problemKinds)();
