import * as v from 'valibot';
import { Envelope } from '../../http/envelope';

export const ReferenceOption = v.object({ id: v.number(), title: v.string() });

const ReferenceOptions = v.array(ReferenceOption);

export const ReferenceLists = v.object({
  climate: ReferenceOptions,
  hobbies: ReferenceOptions,
  travel: ReferenceOptions,
  food: ReferenceOptions,
  rest: ReferenceOptions,
});
export type ReferenceLists = v.InferOutput<typeof ReferenceLists>;

const ChatTokens = v.object({
  'chat-id': v.pipe(v.string(), v.description('Identifier for the embedded chat widget')),
  'chat-token': v.pipe(v.string(), v.description('Token for the same widget')),
});

export const HealthAndCareBody = Envelope(ReferenceLists, ChatTokens);
