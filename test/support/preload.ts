import { afterAll } from 'bun:test';
import { cleanUp } from './cleanup';

afterAll(cleanUp);
