%% The handle of an instance, in one place. Its first element tells it from other tuples; the
%% functions travel with it so that whichever process calls can serve the guest's host calls.
-record(wasmtime_instance, {
    %% Native code's handle.
    ref :: reference(),
    %% The name of the instance in messages to processes that do not wait for it.
    id :: reference(),
    runner :: thread | scheduler,
    funs :: #{{binary(), binary()} => fun((tuple(), [term()]) -> term()),
              initialized => ets:table()},
    %% The functions in the order of their names, as native code counts them.
    table :: tuple()
}).

%% A module with instance options that were checked and linked.
-record(wasmtime_template, {
    ref :: reference(),
    runner :: thread | scheduler,
    %% Where an instance is made because of its options.
    place :: wasmtime_options:place(),
    funs :: #{{binary(), binary()} => fun((tuple(), [term()]) -> term())},
    table :: tuple()
}).
