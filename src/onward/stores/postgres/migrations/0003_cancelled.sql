-- Requests that an operator has ended: whichever process runs one of them reads it here.
ALTER TABLE held ADD COLUMN cancelled boolean NOT NULL DEFAULT false;
CREATE INDEX cancelled_requests ON held (request_id) WHERE cancelled;
