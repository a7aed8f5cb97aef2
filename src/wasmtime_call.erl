%% @private
%% The call loop: starts a request, serves the guest's host calls, waits for the one result.
%% Rule: whatever a host function does, the guest gets an answer and the loop goes on.
-module(wasmtime_call).

-include("wasmtime_instance.hrl").

-export([instantiate/1, instantiate/3, make/1, start/2, table/1, call/4, inside/4, call_ref/4, run/2,
         destroy/1]).

%% @doc A new instance; a start section runs before this returns.
-spec instantiate(reference(), map(), map()) ->
          {ok, #wasmtime_instance{}} | {error, wasmtime_error:t()}.
instantiate(Mod, #{runner := Runner} = Opts, Funs) ->
    Id = make_ref(),
    started(made(new(Mod, wasmtime_options:resolved(Opts), Id), Id, Runner, Funs, table(Funs))).

%% With links there is much to look up and to make.
new(Mod, #{links := Links} = Opts, Id) ->
    case wasmtime_options:place(Opts) of
        inline when Links =/= [] -> new(cpu, Mod, Opts, Id);
        Place -> new(Place, Mod, Opts, Id)
    end.

new(inline, Mod, Opts, Id) ->
    case wasmtime_nif:instance_new(Mod, Opts, Id) of
        dirty -> new(cpu, Mod, Opts, Id);
        Made -> Made
    end;
new(cpu, Mod, Opts, Id) -> wasmtime_nif:instance_new_dirty(Mod, Opts, Id);
new(io, Mod, Opts, Id) -> wasmtime_nif:instance_new_io(Mod, Opts, Id).

%% @doc The functions in the order of their names.
-spec table(map()) -> tuple().
table(Funs) ->
    list_to_tuple([map_get(Name, Funs) || {_, _} = Name <- lists:sort(maps:keys(Funs))]).

%% @doc A new instance of a template.
-spec instantiate(#wasmtime_template{}) ->
          {ok, #wasmtime_instance{}} | {error, wasmtime_error:t()}.
instantiate(Template) -> started(make(Template)).

%% @doc As {@link instantiate/1}, but a start section is left to {@link start/2}: then the answer begins
%% with `start', and the handle is good to destroy the instance.
-spec make(#wasmtime_template{}) ->
          {ok | start, #wasmtime_instance{}} | {error, wasmtime_error:t()}.
make(#wasmtime_template{ref = Template, place = Place, runner = Runner, funs = Funs, table = Table}) ->
    Id = make_ref(),
    made(from(Place, Template, Id), Id, Runner, Funs, Table).

from(inline, Template, Id) ->
    case wasmtime_nif:instance_from(Template, Id) of
        dirty -> from(cpu, Template, Id);
        Made -> Made
    end;
from(cpu, Template, Id) -> wasmtime_nif:instance_from_dirty(Template, Id);
from(io, Template, Id) -> wasmtime_nif:instance_from_io(Template, Id).

made({error, _} = Error, _, _, _, _) ->
    Error;
made({How, Inst0}, Id, Runner, Funs, Table) ->
    {How, #wasmtime_instance{ref = Inst0, id = Id, runner = Runner, funs = Funs, table = Table}}.

started({start, Inst}) ->
    case start(Inst, infinity) of
        {ok, _} -> {ok, Inst};
        Error -> Error
    end;
started(Made) ->
    Made.

%% @doc Runs the start section, within so many ms. An instance that it fails in is gone.
-spec start(#wasmtime_instance{}, timeout()) -> {ok, []} | {error, wasmtime_error:t()}.
start(#wasmtime_instance{runner = scheduler, ref = Inst0} = Inst, Timeout) ->
    drive(wasmtime_nif:instance_start(Inst0, Timeout, undefined), Inst);
start(#wasmtime_instance{ref = Inst0} = Inst, Timeout) ->
    Ref = make_ref(),
    finish(wasmtime_nif:instance_start(Inst0, Timeout, Ref), Ref, Inst).

%% @doc Calls an export.
-spec call(#wasmtime_instance{}, binary(), [term()], map()) ->
          {ok, [term()]} | {error, wasmtime_error:t()}.
call(#wasmtime_instance{runner = scheduler, ref = Inst0} = Inst, Name, Args, Opts) ->
    Result = drive(wasmtime_nif:call_start(Inst0, Name, Args, Opts, undefined), Inst),
    wasmtime_initialized:called(Name, Inst, Result);
call(#wasmtime_instance{ref = Inst0} = Inst, Name, Args, Opts) ->
    Ref = make_ref(),
    Result = finish(wasmtime_nif:call_start(Inst0, Name, Args, Opts, Ref), Ref, Inst),
    wasmtime_initialized:called(Name, Inst, Result).

%% @doc Calls an export, for a host call of another instance that this process serves: the call ends when
%% that does.
-spec inside(#wasmtime_instance{}, #wasmtime_instance{}, binary(), [term()]) ->
          {ok, [term()]} | {error, wasmtime_error:t()}.
inside(#wasmtime_instance{ref = Outer}, #wasmtime_instance{runner = scheduler} = Inst, Name, Args) ->
    Start = wasmtime_nif:call_inside(Inst#wasmtime_instance.ref, Name, Args, undefined, Outer),
    wasmtime_initialized:called(Name, Inst, drive(Start, Inst));
inside(#wasmtime_instance{ref = Outer}, #wasmtime_instance{ref = Inst0} = Inst, Name, Args) ->
    Ref = make_ref(),
    Result = finish(wasmtime_nif:call_inside(Inst0, Name, Args, Ref, Outer), Ref, Inst),
    wasmtime_initialized:called(Name, Inst, Result).

%% @doc Calls the function that a reference refers to.
-spec call_ref(#wasmtime_instance{}, term(), [term()], map()) ->
          {ok, [term()]} | {error, wasmtime_error:t()}.
call_ref(#wasmtime_instance{runner = scheduler, ref = Inst0} = Inst, Func, Args, Opts) ->
    Result = drive(wasmtime_nif:call_ref_start(Inst0, Func, Args, Opts, undefined), Inst),
    wasmtime_initialized:called_ref(Func, Inst, Result);
call_ref(#wasmtime_instance{ref = Inst0} = Inst, Func, Args, Opts) ->
    Ref = make_ref(),
    Result = finish(wasmtime_nif:call_ref_start(Inst0, Func, Args, Opts, Ref), Ref, Inst),
    wasmtime_initialized:called_ref(Func, Inst, Result).

%% A thread runs the guest. All messages carry a reference that is made just before the wait, so a
%% full mailbox is not searched.
finish(ok, Ref, Inst) -> loop(Ref, Inst);
finish(Error, _, _) -> Error.

loop(Ref, Inst) ->
    receive
        {wasmtime_result, Ref, _Id, Result} ->
            Result;
        {wasmtime_host_call, Ref, HostId, Key, Args} ->
            Reply = wasmtime_host:serve(Key, Args, Inst),
            ok = wasmtime_nif:host_reply(Inst#wasmtime_instance.ref, HostId, Reply),
            loop(Ref, Inst)
    end.

%% This process polls the guest itself.
drive({result, Result}, _) -> Result;
drive({error, _} = Error, _) -> Error;
drive({Call, Step}, Inst) -> drive(Step, Call, Inst).

drive(Step, Call, Inst) ->
    case Step of
        {host, HostId, Index, Args} ->
            Fun = element(Index + 1, Inst#wasmtime_instance.table),
            Reply = wasmtime_host:answer(Fun, Inst, Args),
            drive(wasmtime_nif:call_resume(Call, HostId, Reply), Call, Inst);
        {result, Result} ->
            Result;
        again ->
            drive(wasmtime_nif:call_poll(Call), Call, Inst);
        wait ->
            ok = sleep(Call),
            drive(wasmtime_nif:call_poll(Call), Call, Inst)
    end.

%% Waits until the guest wants something of the process that polls it. The reference is made
%% only where it is waited for: OTP 25 crashes when references that a receive is prepared for pile
%% up in calls inside calls.
sleep(Call) ->
    Ref = make_ref(),
    case wasmtime_nif:call_sleep(Call, Ref) of
        wait -> receive {wasmtime_wake, Ref} -> ok end;
        again -> ok
    end.

%% @doc Runs a WASI command.
-spec run(#wasmtime_instance{}, map()) -> ok | {error, wasmtime_error:t()}.
run(Inst, Opts) ->
    case call(Inst, <<"_start">>, [], Opts) of
        {ok, _} -> ok;
        Error -> Error
    end.

%% @doc Ends an instance; its store is gone and its place is free when this returns.
-spec destroy(#wasmtime_instance{}) -> ok.
destroy(#wasmtime_instance{ref = Inst0}) ->
    case wasmtime_nif:instance_destroy(Inst0) of
        ok -> ok;
        wait -> mourn(Inst0);
        dirty -> destroy_dirty(Inst0);
        %% A panic of ours: what is left is done there.
        {error, _} -> destroy_dirty(Inst0)
    end.

destroy_dirty(Inst0) ->
    case wasmtime_nif:instance_destroy_dirty(Inst0) of
        ok -> ok;
        wait -> mourn(Inst0)
    end.

mourn(Inst0) ->
    Ref = make_ref(),
    case wasmtime_nif:instance_mourn(Inst0, Ref) of
        ok -> ok;
        wait -> receive {wasmtime_result, Ref, _Id, _} -> ok end
    end.
