%% @private
%% Calls that their process does not wait for, and waiting for them later.
%% Rule: each gives one message, `{wasmtime_result, Ref, Id, Result}', whatever becomes of it.
-module(wasmtime_async).

-include("wasmtime_instance.hrl").

-export([start/4, await/3]).
-export([drive/1, woken/1]).

-define(MAX_ID, 16#FFFFFFFFFFFFFFFF).

%% @doc Starts a call of an export.
-spec start(#wasmtime_instance{}, binary(), [term()], map()) ->
          {ok, pos_integer()} | {error, wasmtime_error:t()}.
start(#wasmtime_instance{ref = Inst0, id = Id} = Inst, Name, Args, Opts) ->
    Started = case wasmtime_nif:call_async(Inst0, Name, Args, Opts, Id) of
        {drive, Job, Call} -> driven(Job, Call, Id);
        Other -> Other
    end,
    wasmtime_initialized:started(Name, Inst, Started).

%% A node may have no room for the process: then the call is taken back before anybody hears of it.
driven(Job, Call, Id) ->
    try spawn(?MODULE, drive, [Call]) of
        Driver ->
            ok = wasmtime_nif:call_guard(Call, Driver),
            {ok, Job}
    catch
        error:system_limit ->
            ok = wasmtime_nif:call_abandon(Call),
            receive {wasmtime_result, Id, Job, _} -> ok end,
            Text = <<"the node has no room for the process that would poll the call">>,
            {error, wasmtime_error:new(limit, process_limit, Text)}
    end.

%% @doc A process that does nothing but poll one call. Native code watches it, and who asked. It goes on
%% in the newest code after each slice, and has none on its stack while it waits: a purge does not end
%% the call.
-spec drive(reference()) -> ok.
drive(Call) ->
    case wasmtime_nif:call_poll(Call) of
        again -> ?MODULE:drive(Call);
        wait -> rest(Call);
        {result, _} -> ok
    end.

rest(Call) ->
    case wasmtime_nif:call_sleep(Call, make_ref()) of
        wait -> erlang:hibernate(?MODULE, woken, [Call]);
        again -> ?MODULE:drive(Call)
    end.

%% @doc Such a process, woken by a message, whose news is in the call.
-spec woken(reference()) -> ok.
woken(Call) ->
    receive _ -> woken(Call)
    after 0 -> drive(Call)
    end.

%% @doc Waits for the result, at most that many milliseconds: then the call is cancelled.
-spec await(#wasmtime_instance{}, term(), timeout()) ->
          {ok, [term()]} | {error, wasmtime_error:t()}.
await(#wasmtime_instance{ref = Inst0} = Inst, Job, Timeout)
  when is_integer(Job), Job >= 0, Job =< ?MAX_ID ->
    case wasmtime_nif:call_await(Inst0, Job, Timeout) of
        wait -> result(Inst, Job);
        {drive, Call} -> pump(Call, Inst, Job);
        none -> over(Inst, Job);
        told -> told(Inst, Job, Timeout);
        itself -> unknown("the call ~w waits for this host function", Job);
        other -> unknown("the call ~w was made by another process", Job)
    end;
await(#wasmtime_instance{}, Job, _) ->
    unknown("~0tp is no call", Job).

%% Its message comes at once, or was taken: native code knows the call until a moment later.
told(#wasmtime_instance{id = Id} = Inst, Job, Timeout) ->
    receive
        {wasmtime_result, Id, Job, Result} -> came(Inst, Job, Result)
    after 1 ->
        await(Inst, Job, Timeout)
    end.

%% The call is over: its message is here, or was taken.
over(#wasmtime_instance{id = Id} = Inst, Job) ->
    receive
        {wasmtime_result, Id, Job, Result} -> came(Inst, Job, Result)
    after 0 ->
        unknown("no call ~w of this instance is under way", Job)
    end.

unknown(Format, Job) ->
    {error, wasmtime_error:badarg(call, wasmtime_error:text(Format, [Job]))}.

%% The result always comes: time is watched where the guest runs.
result(#wasmtime_instance{id = Id} = Inst, Job) ->
    receive
        {wasmtime_result, Id, Job, Result} ->
            came(Inst, Job, Result);
        {wasmtime_host_call, Id, _, _, _} = HostCall ->
            _ = wasmtime_host:handle(Inst, HostCall),
            result(Inst, Job)
    end.

%% The call runs inside one that this process polls: nobody else does.
pump(Call, Inst, Job) ->
    case wasmtime_nif:call_poll(Call) of
        again -> pump(Call, Inst, Job);
        {result, _} -> result(Inst, Job);
        wait ->
            Ref = make_ref(),
            case wasmtime_nif:call_sleep(Call, Ref) of
                wait -> woken(Ref, Inst);
                again -> ok
            end,
            pump(Call, Inst, Job)
    end.

woken(Ref, #wasmtime_instance{id = Id} = Inst) ->
    receive
        {wasmtime_wake, Ref} ->
            ok;
        {wasmtime_host_call, Id, _, _, _} = HostCall ->
            _ = wasmtime_host:handle(Inst, HostCall),
            woken(Ref, Inst)
    end.

came(Inst, Job, Result) ->
    ok = wasmtime_initialized:ended(Job, Inst, Result),
    clean(Inst, Result).

%% A call that failed may leave a host call that nobody waits for any more. At most one is still
%% waited for, and that is the last: it belongs to the call that runs now.
clean(_, {ok, _} = Result) ->
    Result;
clean(#wasmtime_instance{id = Id, ref = Inst0} = Inst, Result) ->
    receive
        {wasmtime_host_call, Id, HostId, _, _} = HostCall ->
            case wasmtime_nif:host_pending(Inst0, HostId) of
                true -> self() ! HostCall, Result;
                false -> clean(Inst, Result)
            end
    after 0 ->
        Result
    end.
